"""Configs: one file per published row, or family of rows, each starting from `configs.common.default()`."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
