"""The Transformer as pure functions of parameters and arrays."""

from vaswani.errors import refuse_short_name

refuse_short_name(__name__)
