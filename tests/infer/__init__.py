"""Tests of infer/."""
