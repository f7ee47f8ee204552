"""What a sentence of the grammar is, read off its English tree: classes for a classifier to tell apart.

Of several clauses the first main clause is meant.
"""

from collections.abc import Callable, Iterator

from data.trees.tree import Tree

_FINITE = {"VBZ": "present", "VBP": "present", "VBD": "past", "MD": "modal"}
_NOUNS = ("NN", "NNS", "NNP", "PRP", "EX")
_PLURAL = ("we", "they", "you")


def _within(tree: Tree, through: tuple[str, ...] = ()) -> Iterator[Tree]:
    """Yields the constituents of a tree in their order, and after each of a label in `through` its own."""
    for part in () if isinstance(tree.children, str) else tree.children:
        yield part
        if part.label in through:
            yield from _within(part, through)


def tense(tree: Tree) -> str:
    """Returns the tense of the finite verb: present, past, or modal, as in "will go" and "can go"."""
    return next(_FINITE[part.label] for part in _within(tree, ("S", "SQ", "VP")) if part.label in _FINITE)


def number(tree: Tree) -> str:
    """Returns the number of the subject: singular or plural; "who" is singular, and "you" plural."""
    subject = None
    for part in _within(tree, ("S", "SQ")):
        if part.label in ("VP", "ADJP") or (part.label == "PP" and subject):  # the predicate
            if subject and [leaf.label for leaf in subject.terminals()] == ["EX"]:  # as in "there are two dogs"
                subject = next(noun for noun in _within(part) if noun.label == "NP")
            break
        if part.label == "NP":  # the last one: before the subject may be a time, or the name of who is spoken to
            subject = part
    return "singular" if subject is None else _number(subject)


def _number(phrase: Tree) -> str:
    parts = list(_within(phrase))
    if any(part.label == "CC" for part in parts):
        return "plural"
    nouns = [part for part in parts if part.label in _NOUNS]
    if not nouns:
        return _number(parts[0])
    return "plural" if nouns[-1].label == "NNS" or str(nouns[-1].children).lower() in _PLURAL else "singular"


def clause(tree: Tree) -> str:
    """Returns the type of the sentence: wh, polar (yes or no), coordinate, subordinate or simple."""
    if tree.label in ("SBARQ", "SQ"):
        return {"SBARQ": "wh", "SQ": "polar"}[tree.label]
    if any(part.label == "CC" for part in _within(tree)):
        return "coordinate"
    return "subordinate" if "(SBAR " in tree.bracketed() else "simple"


PROPERTIES: dict[str, Callable[[Tree], str]] = {"tense": tense, "number": number, "clause": clause}
