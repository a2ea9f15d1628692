"""What options take, for argparse: a wrong value ends a program before it begins."""

import argparse


def count(text: str) -> int:
    """How many of something."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return value
