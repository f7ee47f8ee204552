"""sacremoses' tokenizer, faster. Imported where text is tokenised: the import takes a quarter of a second."""

import sacremoses

VERSION = sacremoses.__version__


class Moses(sacremoses.MosesTokenizer):
    """Caches the sets of all Unicode letters, which the base class rebuilds at every full stop: a minute per MB."""

    _lower = frozenset(sacremoses.MosesTokenizer.IsLower)
    _alpha = frozenset(sacremoses.MosesTokenizer.IsAlpha)

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._alpha.isdisjoint(text)
