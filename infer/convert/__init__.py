"""Runs in the formats of other engines, and checkpoints of other engines as runs; one file for each format."""
