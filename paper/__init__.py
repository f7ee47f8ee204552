"""Finished runs to tables: the paper's number next to ours."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
