"""Utilities that any room may use: errors, progress, files, tables."""
