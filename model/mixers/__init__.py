"""Mixers: the layers that move information between positions."""
