"""Training: from a config and batches to parameters, checkpoints and metrics."""
