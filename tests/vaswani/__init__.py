"""Tests of base/."""
