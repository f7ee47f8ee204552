"""Base and big compiled for machines that are not here: the records and tables of docs/scaling.md."""
