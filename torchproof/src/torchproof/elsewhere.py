"""What no row of the matrix runs, because it takes a GPU: reported as not run, with its command."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """Something that another command runs on another machine."""

    what: str
    command: str
    reason: str = "it needs a CUDA device"


ELSEWHERE = (
    Elsewhere("the suite on a GPU", "python3 -m nox -s gpu"),
    Elsewhere("compute-sanitizer on the CUDA kernels", "python3 -m nox -s sanitize-cuda"),
    Elsewhere("the speed of the CUDA kernels", "python3 -m nox -s bench-cuda"),
)
