"""Data: text to batches of subword ids, and back."""
