"""A run on disk and on devices: its folder, checkpoints, processes and mesh."""
