"""What names a row: in the matrix, in its result and in a record of what is proven."""

from dataclasses import dataclass

from torchproof.config import HOME, HOST


@dataclass(frozen=True, kw_only=True)
class Combination:
    """A torch, a Python and a build, on a platform, level and system, and what is run there."""

    torch: str
    python: str
    binding: str
    compiler: str
    cuda: str
    platform: str = HOME
    level: str = HOST
    system: str = HOST
    suite: str
