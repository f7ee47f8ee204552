"""A constituency tree with Penn labels."""

from typing import NamedTuple


class Tree(NamedTuple):
    """A constituent with a Penn label; `children` are trees, or the word at a leaf."""

    label: str
    children: "tuple[Tree, ...] | str"

    def terminals(self) -> "list[Tree]":
        """Returns the leaf nodes (part-of-speech label over a word), left to right."""
        terminals = []
        waiting = [self]
        while waiting:
            node = waiting.pop()
            if isinstance(node.children, str):
                terminals.append(node)
            else:
                waiting.extend(reversed(node.children))
        return terminals

    def leaves(self) -> list[str]:
        """Returns the tokens of the sentence."""
        return [str(node.children) for node in self.terminals()]

    def bracketed(self) -> str:
        """Returns Penn brackets on one line: `(S (NP (DT the) (NN dog)) ...)`."""
        if isinstance(self.children, str):
            return f"({self.label} {self.children})"
        return f"({self.label} {' '.join(child.bracketed() for child in self.children)})"

    def capitalised(self) -> "Tree":
        """Returns the tree with its first word capitalised."""
        if isinstance(self.children, str):
            return Tree(self.label, self.children[0].upper() + self.children[1:])
        first, *others = self.children
        return Tree(self.label, (first.capitalised(), *others))
