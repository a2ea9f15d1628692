"""Files of this tool that the project carries copies of, so that it needs nothing of the tool."""

from pathlib import Path

from torchproof import config
from torchproof.files import write_atomically

HERE = Path(__file__).parent


def _texts() -> dict[str, str]:
    """What each copy must be, by its path in the project."""
    copies = config.load().copies
    return {copy.path: (HERE / copy.of).read_text(encoding="utf-8") for copy in copies}


def write() -> None:
    """Write every copy."""
    for path, text in _texts().items():
        write_atomically(config.ROOT / path, text)


def check() -> tuple[str, ...]:
    """Each copy that is missing or differs from its original, in one sentence."""
    return tuple(
        f"{path}: is not the file of torchproof that it copies; edit that one and run "
        "`torchproof run --write`"
        for path, text in _texts().items()
        if not (copy := config.ROOT / path).is_file() or copy.read_bytes() != text.encode()
    )
