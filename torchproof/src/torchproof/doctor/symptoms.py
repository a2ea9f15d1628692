"""The rows of data/symptoms.toml: how each broken rule shows itself in a message."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from torchproof.audit import shims, symbols
from torchproof.config import read_toml
from torchproof.doctor.here import Here

TABLE = Path(__file__).parents[1] / "data" / "symptoms.toml"


@dataclass(frozen=True)
class Fix:
    """A command, and what it does or when it helps."""

    command: str
    note: str


@dataclass(frozen=True)
class Symptom:
    """One row.

    Attributes:
        rule: the audit's rule; where it has none, a name of the same kind.
        pattern: what the message holds; its named groups fill the texts.
        cause: one sentence.
        fixes: what to do, the most likely first.
        applies: whether an undefined symbol is of this row, in this environment.
    """

    rule: str
    pattern: re.Pattern[str]
    cause: str
    fixes: tuple[Fix, ...]
    applies: Callable[[str, Here], bool]


SYMBOL = re.compile(
    r"(?:undefined symbol: |[Ss]ymbol not found(?: in flat namespace|:) '?_)(?P<symbol>[\w.$]+)"
)
CUDA_C = re.compile(
    r"_*(?:cuda|cu)[A-Z]|_*(?:cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvJitLink)"
)
CUDA_CXX = re.compile(r"_Z.*(?:2at|3c10)4cuda|_Z.*CUDA")
TORCH_C = re.compile(r"(?:aoti_)?torch_[a-z]")


def _is_cuda(symbol: str) -> bool:
    shim = shims.table().get(symbol)
    if shim is not None:
        return shim.device == "cuda"
    return bool(CUDA_C.match(symbol) or CUDA_CXX.match(symbol))


def _is_new_shim(symbol: str, here: Here) -> bool:
    shim = shims.table().get(symbol)
    if shim is None:
        return False
    return here.torch is None or Version(shim.since) > Version(here.torch.series)


def _is_removed_shim(symbol: str, here: Here) -> bool:
    shim = shims.table().get(symbol)
    if shim is None or shim.removed is None or here.torch is None:
        return False
    return Version(shim.removed) <= Version(here.torch.series)


def _is_there(symbol: str, here: Here) -> bool:
    torch = symbols.is_torch_cxx(symbol) or TORCH_C.match(symbol)
    return bool(torch) and here.defines(symbol)


def _has_other_string(symbol: str, here: Here) -> bool:
    mentioned = symbols.cxx11_strings([symbol])
    if not mentioned or not symbols.is_torch_cxx(symbol) or here.cxx11_abi is None:
        return False
    return here.cxx11_abi not in mentioned


# The tests of an undefined symbol that rows name.
SYMBOLS: dict[str, Callable[[str, Here], bool]] = {
    "of_python": lambda symbol, here: symbols.is_python(symbol),
    "in_torch": _is_there,
    "cuda_without_cuda": lambda symbol, here: _is_cuda(symbol) and here.without_cuda,
    "of_cuda": lambda symbol, here: CUDA_C.match(symbol) is not None,
    "newer_shim": _is_new_shim,
    "removed_shim": _is_removed_shim,
    "shim": lambda symbol, here: symbol in shims.table(),
    "like_torch": lambda symbol, here: TORCH_C.match(symbol) is not None,
    "other_string": _has_other_string,
    "torch_cxx": lambda symbol, here: symbols.is_torch_cxx(symbol),
    "of_std": lambda symbol, here: symbols.is_std(symbol),
    "any": lambda symbol, here: True,
}


def _read() -> Iterator[Symptom]:
    table = read_toml(TABLE)
    fixes = {name: Fix(**fix) for name, fix in table["fixes"].items()}
    for row in table["symptoms"]:
        pattern = SYMBOL
        if "symbol" not in row:
            pattern = re.compile(row["message"], re.IGNORECASE | re.DOTALL)
        applies = SYMBOLS[row.get("symbol", "any")]
        chosen = tuple(fixes[name] for name in row["fixes"])
        yield Symptom(row["rule"], pattern, row["cause"], chosen, applies)


SYMPTOMS = tuple(_read())
