"""Data: text to batches of subword ids, and back."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
