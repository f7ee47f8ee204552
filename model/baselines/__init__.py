"""Models that the Transformer replaced."""
