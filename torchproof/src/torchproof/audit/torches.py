"""An installed torch, looked at from outside: its version, CUDA release and libraries."""

import ast
from dataclasses import dataclass
from pathlib import Path

from torchproof.errors import TorchproofError


class NotTorchError(TorchproofError):
    """The folder holds no installed torch."""


@dataclass(frozen=True)
class Torch:
    """One installation; `version` as torch.__version__ says it, `cuda` None in a CPU build."""

    path: Path
    version: str
    cuda: str | None

    @property
    def series(self) -> str:
        """The release series, which decides binary compatibility: "2.13"."""
        return ".".join(self.version.split(".")[:2])


def find_torch(path: Path) -> Torch:
    """The torch in a folder: the `torch` package, a site-packages or an environment's root."""
    places = (path, path / "torch", *sorted(path.glob("lib/python3*/site-packages/torch")))
    for place in places:
        if (place / "version.py").is_file() and (place / "lib").is_dir():
            values = _assignments(place / "version.py")
            return Torch(place, str(values["__version__"]), _text(values.get("cuda")))
    raise NotTorchError(
        f"{path} holds no torch: expected the installed torch package, the site-packages or the"
        " environment it is in"
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _assignments(module: Path) -> dict[str, object]:
    """The plain `name = literal` lines of a Python file."""
    found: dict[str, object] = {}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        if isinstance(node.value, ast.Constant):
            found.update({t.id: node.value.value for t in targets if isinstance(t, ast.Name)})
    return found
