"""Tests of train/."""
