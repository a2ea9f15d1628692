"""The base of every error that a user can act on: one sentence, and no traceback."""


class TorchproofError(Exception):
    """Something the user can fix; the message says what was expected, what came and what to do."""


class ConfigError(TorchproofError, ValueError):
    """`matrix.toml` cannot be read; the message names the line and the rule."""
