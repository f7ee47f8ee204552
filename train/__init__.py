"""Training: from a config and batches to parameters, checkpoints and metrics."""

from base.interrupt import while_starting

while_starting()
