"""Texts and their classes, in the form that `data.corrupt` gives a text to restore."""

from collections.abc import Sequence

import numpy as np

from vaswani.data.batching import Record
from vaswani.data.prepared import Prepared
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import PAD


def classes_of(names: str) -> tuple[str, ...]:
    """Returns the classes that `data.classes` names; `UserError` unless there are two or more, all different."""
    classes = tuple(name.strip() for name in names.split(","))
    are_distinct = len(set(classes)) == len(classes)
    if len(classes) < 2 or not are_distinct or "" in classes:
        raise UserError(f"data.classes is {names!r}; it must be two classes or more, as in past,present,modal")
    return classes


class Classified:
    """A prepared corpus of texts and classes, with the interface of a `Prepared` corpus of pairs.

    The second side of a pair is as long as the text: at its EOS it has the number of the class, from 0, and padding
    elsewhere.
    """

    def __init__(self, prepared: Prepared, tokenizer: Tokenizer, classes: Sequence[str]):
        """Reads the class of every text; `UserError` if one is not in `classes`, or two of these are encoded alike."""
        target = tokenizer.target
        numbers = {tuple(target.encode(name)): number for number, name in enumerate(classes)}
        if len(numbers) < len(classes):
            raise UserError(
                f"data.classes is {','.join(classes)}: two of them are the same subwords to this tokenizer; rename one"
            )
        labels = [tuple(label[:-1].tolist()) for _, label in prepared.records(range(len(prepared)))]
        for label in labels:
            if label not in numbers:
                raise UserError(
                    f"corpus {prepared.manifest['spec']!r}: class {target.decode(label)!r} is not in data.classes, "
                    f"which are {', '.join(classes)}"
                )
        self.manifest = prepared.manifest
        self.lengths = np.repeat(prepared.lengths[:, :1], 2, axis=1)
        self.class_n = np.array([numbers[label] for label in labels], np.int32)
        self._prepared = prepared

    def records(self, indices: Sequence[int] | np.ndarray, epoch: int = 0) -> list[Record]:
        """Returns the pairs with these numbers, the same in every epoch; raises as `Prepared.records`."""
        numbers = self.class_n[np.asarray(indices, np.int64)]
        pairs: list[Record] = []
        for (ids, _), number in zip(self._prepared.records(indices), numbers, strict=True):
            label = np.full_like(ids, PAD)
            label[-1] = number
            pairs.append((ids, label))
        return pairs
