"""The explorer: a trained translator that runs in the reader's browser, from one file."""
