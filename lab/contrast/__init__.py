"""How often a right sentence is more probable than one with a wrong word, by the distance to what decides it."""
