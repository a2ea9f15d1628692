"""The base of every error that a user can act on: one sentence, and no traceback."""

import errno


class TorchproofError(Exception):
    """Something the user can fix; the message says what was expected, what came and what to do."""


class ConfigError(TorchproofError, ValueError):
    """`matrix.toml` cannot be read; the message names the line and the rule."""


class WrongKeyError(ConfigError):
    """A table has a value that it cannot have; `key` names which."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key} {problem}")
        self.key = key


REMEDIES = {
    errno.EACCES: "run this where you may read and write",
    errno.EROFS: "run this where you may write",
    errno.ENOSPC: "free some space and run this again",
}


def explain_error(error: object) -> str:
    """An error in one sentence: that of a system call without its number, and with a remedy."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    where = f"{error.filename}: " if error.filename else ""
    remedy = REMEDIES.get(error.errno or 0)
    return f"{where}{error.strerror}" + (f"; {remedy}" if remedy else "")
