"""The Transformer as pure functions of parameters and arrays."""
