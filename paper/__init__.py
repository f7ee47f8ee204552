"""Finished runs to tables: the paper's number beside ours."""
