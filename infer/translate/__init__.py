"""Translation of lines: search options, batches, streams of lines."""
