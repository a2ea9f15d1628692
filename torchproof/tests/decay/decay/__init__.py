"""A made-up package."""
