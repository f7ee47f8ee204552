"""Whether patching an activation moves the word that depends on it, on sentences whose translations are known."""
