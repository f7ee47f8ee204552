"""The built-in corpus: a synchronous English-German grammar."""
