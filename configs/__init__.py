"""Experiments: one file per published row or family of rows; each starts from `configs.common.default()`."""
