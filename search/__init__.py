"""Decoding: beam search, sampling, and the log-probabilities of given outputs."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
