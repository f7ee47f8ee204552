"""Runs at a glance: what each of them is, and how their curves compare. Nothing here imports jax."""
