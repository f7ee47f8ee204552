"""What models of a single text do: fill blanks, name a class, continue a prompt."""
