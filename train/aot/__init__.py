"""Ahead-of-time compilation for TPUs, on a machine without one."""
