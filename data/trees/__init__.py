"""Constituency trees: Penn brackets, and trees as lines of symbols."""
