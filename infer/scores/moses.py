"""sacremoses' tokenizer, without its slowest step. Import it where text is tokenised: that takes a quarter second."""

import sacremoses


class Moses(sacremoses.MosesTokenizer):
    """Keeps the sets of Unicode's letters, which the base class rebuilds at every full stop: a minute per MB."""

    version = sacremoses.__version__
    _lower = frozenset(sacremoses.MosesTokenizer.IsLower)
    _alpha = frozenset(sacremoses.MosesTokenizer.IsAlpha)

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._alpha.isdisjoint(text)
