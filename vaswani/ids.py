"""The ids of the special tokens, which begin every vocabulary here."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
