"""Finished runs to tables: the paper's number beside ours."""

from vaswani.interrupt import while_starting

while_starting()
