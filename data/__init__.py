"""Text to batches of subword ids, and back."""
