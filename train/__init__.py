"""Training: from a config and batches to parameters, checkpoints and metrics."""

from vaswani.interrupt import while_starting

while_starting()
