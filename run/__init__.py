"""A run on disk and on devices: its folder, checkpoints, processes and mesh."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
