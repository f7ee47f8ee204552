"""A page to translate on, in a browser: `python -m infer.demo`."""
