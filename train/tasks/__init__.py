"""What can be trained, a file each: the model, its batches, its loss and what is measured on the validation set."""
