"""Configs: one file per published row, or family of rows, each starting from `configs.common.default()`."""
