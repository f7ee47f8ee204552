"""Tests of paper/."""
