"""Finished runs to tables: the paper's number next to ours."""

from vaswani.names import refuse_short_name

refuse_short_name(__name__)
