"""Parameters and text to translations, scores and attention maps."""
