"""The rich grammar: the built-in one with several thousand words, and sentences whose words are decided from afar."""
