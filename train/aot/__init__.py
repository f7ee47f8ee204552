"""Ahead-of-time compilation for TPUs that this machine need not have."""
