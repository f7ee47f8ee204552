"""What attention heads look at."""
