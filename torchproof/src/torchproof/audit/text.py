"""Text out of a file that nobody trusts, fit for a terminal and for one line of it."""

WIDEST = 160


def printable(raw: bytes) -> str:
    """A name out of a file: what is not printable is written as an escape."""
    text = raw.decode("utf-8", "backslashreplace")
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def shorten(text: object) -> str:
    """A text on one line, cut where a table or a sentence has no room for more of it."""
    line = " ".join(str(text).split())
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 3]}..."
