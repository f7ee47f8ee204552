"""Attention maps, and what attention heads attend to."""
