"""Whether a library that claims abi3 keeps to CPython's limited API, as abi3info records it."""

from dataclasses import dataclass

from abi3info import DATAS, FUNCTIONS
from abi3info.models import PyVersion
from abi3info.models import Symbol as PythonSymbol

from torchproof.audit import symbols
from torchproof.audit.elf import Elf


@dataclass(frozen=True)
class Abi3:
    """What a library that claims abi3 uses beyond it."""

    baseline: str
    computed: str
    foreign: tuple[str, ...]  # names outside the limited API

    @property
    def sound(self) -> bool:
        """Whether the claim holds."""
        return not self.foreign and self.computed == self.baseline


def check(elf: Elf, baseline: str) -> Abi3:
    """Check a library that claims the limited API of CPython `baseline`, or of a later one."""
    names = [symbol.name for symbol in elf.undefined if symbols.is_python(symbol.name)]
    known = {
        name: found
        for name in names
        if (found := FUNCTIONS.get(PythonSymbol(name)) or DATAS.get(PythonSymbol(name)))
    }
    needed = [PyVersion.parse_dotted(baseline), *(found.added for found in known.values())]
    return Abi3(baseline, str(max(needed)), tuple(sorted(set(names) - set(known))))
