"""Ahead-of-time compilation for TPUs and GPUs, on a machine without one."""
