"""The paper's Tables 1 to 4, made from finished runs."""
