"""Training in lockstep with PyTorch: the record, its table and its figure."""
