"""Training: from a config and batches to parameters, checkpoints and metrics."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
