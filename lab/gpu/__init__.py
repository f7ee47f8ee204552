"""One GPU for a quarter of an hour: training and measurements in the order of their worth; the cost of its program."""
