"""Data: text to batches of subword ids, and back."""

from base.interrupt import while_starting

while_starting()
