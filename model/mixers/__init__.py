"""What moves information between positions."""
