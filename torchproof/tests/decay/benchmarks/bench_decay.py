"""What a row times."""
