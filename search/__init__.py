"""Decoding: beam search, sampling, and the log-probabilities of given outputs."""
