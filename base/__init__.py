"""What any room may use: errors, progress, files."""
