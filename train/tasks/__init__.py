"""The tasks, one file each: the model, its batches, its loss and its validation metrics."""
