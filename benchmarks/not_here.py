"""What a competitor raises that cannot compute a row here."""

from __future__ import annotations


class NotHere(Exception):
    """Why a competitor cannot compute a row here."""
