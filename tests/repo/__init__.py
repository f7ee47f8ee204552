"""Tests of the repository itself: its layout, texts, packages and configs; and every command against wrong input."""
