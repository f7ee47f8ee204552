"""Evaluations of a run, one file for each kind of output, and their records."""
