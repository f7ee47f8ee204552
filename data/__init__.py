"""Data: text to batches of subword ids, and back."""

from vaswani.interrupt import while_starting

while_starting()
