"""Constituency trees: reading Penn brackets, and linearising trees for a translation model."""
