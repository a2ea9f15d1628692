"""What the campaigns' command lines take: a wrong one ends them before anything is built."""

from __future__ import annotations

import argparse
import math


def minutes(text: str) -> float:
    """A budget."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected more than 0 minutes, got {text}")
    return value


def read_restrictable(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line of a campaign with `--only`, of which no record is kept as the whole's."""
    options = parser.parse_args()
    if options.record and options.only:
        parser.error("--record keeps the figures of a whole campaign: leave --only out")
    return options
