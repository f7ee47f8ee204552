"""Published numbers of other papers that the studies compare themselves with."""

# A Transformer's, attributed to Furrer et al. 2020 (arXiv 2007.08970), rounded; we have not seen their table.
SCAN: dict[str, float | None] = {"simple": None, "length": 0.0, "around-right": 53.0}

# Exact match on all longer outputs, of a Transformer with relative positions that was trained on up to 26 actions:
# Csordas et al. 2021 (arXiv 2108.12284), at second hand. It is their model whose layers share their parameters; we have
# no number of the one whose layers do not.
SCAN_26 = 100.0

# Word error rate of an ensemble of neural transducers, the baseline of SIGMORPHON 2021, task 1: Ashby et al. 2021,
# "Results of the Second SIGMORPHON Shared Task on Multilingual Grapheme-to-Phoneme Conversion".
G2P = {
    "arm_e": 7.0,
    "bul": 18.3,
    "dut": 14.7,
    "fre": 8.5,
    "geo": 0.0,
    "hbs_latn": 32.1,
    "hun": 1.8,
    "jpn_hira": 5.2,
    "kor": 16.3,
    "vie_hanoi": 2.5,
}
