"""Utilities that any package may use: errors, progress, files, tables."""
