"""Config and batches to parameters, checkpoints and metrics."""
