"""Tests of run/."""
