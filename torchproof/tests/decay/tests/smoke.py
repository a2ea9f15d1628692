"""What a row imports."""
