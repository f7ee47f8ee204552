"""Sequences out of a model: beam search, sampling, and the log-probabilities of given ones."""
