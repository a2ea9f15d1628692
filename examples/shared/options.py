"""What the examples read from a command line, refused in a sentence where it cannot be used."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import torch

DEVICES = ("cpu", "cuda")


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if number < 1:
        raise ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def device_here(text: str) -> str:
    """Refuse a GPU where torch sees none; what is none of DEVICES is left to argparse."""
    if text == "cuda" and not torch.cuda.is_available():
        why = "sees no GPU" if torch.version.cuda else "is built without CUDA"
        raise ArgumentTypeError(f"must be cpu here, got cuda: torch {torch.__version__} {why}")
    return text


def folder(text: str) -> Path:
    """Where results go; it need not be there yet."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise ArgumentTypeError(f"must be a folder, got the file {path}")
    return path
