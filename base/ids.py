"""The ids that every vocabulary of ours begins with."""

PAD, BOS, EOS, UNK = 0, 1, 2, 3
