"""Finished runs to tables: the paper's number beside ours."""

from vaswani.interrupt import while_starting
from vaswani.names import refuse_short_name

refuse_short_name(__name__)
while_starting()
