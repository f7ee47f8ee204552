"""What a sentence of the grammar is, read off its English tree: classes for a classifier to tell apart.

Of several clauses the first main clause is meant.
"""

from collections.abc import Callable, Iterator

from vaswani.data.trees.tree import Tree

_FINITE = {"VBZ": "present", "VBP": "present", "VBD": "past", "MD": "modal"}
_NOUNS = ("NN", "NNS", "NNP", "PRP", "EX")
_PLURAL = ("we", "they", "you")


def _within(tree: Tree, through: tuple[str, ...] = ()) -> Iterator[Tree]:
    """Yields the constituents of a tree in their order, and after each of a label in `through` its own."""
    if isinstance(tree.children, str):
        return
    for part in tree.children:
        yield part
        if part.label in through:
            yield from _within(part, through)


def tense(tree: Tree) -> str:
    """Returns the tense of the finite verb: present, past, or modal, as in "will go" and "can go"."""
    finite = next(part for part in _within(tree, ("S", "SQ", "VP")) if part.label in _FINITE)
    return _FINITE[finite.label]


def number(tree: Tree) -> str:
    """Returns the number of the subject: singular or plural; "who" is singular, and "you" plural."""
    subject = None
    for part in _within(tree, ("S", "SQ")):
        is_predicate = part.label in ("VP", "ADJP") or (part.label == "PP" and subject)
        if is_predicate:
            if subject and _is_there(subject):
                subject = next(phrase for phrase in _within(part) if phrase.label == "NP")
            break
        if part.label == "NP":  # the last one: before the subject may be a time, or the name of who is spoken to
            subject = part
    return "singular" if subject is None else _number(subject)


def _is_there(subject: Tree) -> bool:
    """Returns whether it is that of "there are two dogs", which agrees with what follows the verb."""
    return [terminal.label for terminal in subject.terminals()] == ["EX"]


def _number(phrase: Tree) -> str:
    parts = list(_within(phrase))
    if any(part.label == "CC" for part in parts):
        return "plural"
    nouns = [part for part in parts if part.label in _NOUNS]
    if not nouns:
        return _number(parts[0])
    head = nouns[-1]
    is_plural = head.label == "NNS" or str(head.children).lower() in _PLURAL
    return "plural" if is_plural else "singular"


def clause(tree: Tree) -> str:
    """Returns the type of the sentence: wh, polar (yes or no), coordinate, subordinate or simple."""
    if tree.label == "SBARQ":
        return "wh"
    if tree.label == "SQ":
        return "polar"
    if any(part.label == "CC" for part in _within(tree)):
        return "coordinate"
    return "subordinate" if "(SBAR " in tree.bracketed() else "simple"


PROPERTIES: dict[str, Callable[[Tree], str]] = {"tense": tense, "number": number, "clause": clause}
