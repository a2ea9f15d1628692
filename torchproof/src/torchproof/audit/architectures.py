"""CUDA architectures in the spelling of the device images: `sm_90a`, `compute_90` for PTX."""

import re
from collections.abc import Iterable

TORCH_SPELLING = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?")
NVCC_SPELLING = re.compile(r"(?:sm|compute)_\d+[af]?")


def images_of(declared: Iterable[str]) -> tuple[str, ...]:
    """The images that declared architectures stand for: "9.0+PTX" is sm_90 and compute_90."""
    names: list[str] = []
    for entry in declared:
        torch = TORCH_SPELLING.fullmatch(entry)
        if torch:
            number = f"{torch[1]}{torch[2]}{torch[3]}"
            names += [f"sm_{number}"] + ([f"compute_{number}"] if torch[4] else [])
        elif NVCC_SPELLING.fullmatch(entry):
            names.append(entry)
        else:
            raise ValueError(
                f"{entry!r} is no CUDA architecture; write 9.0, 9.0a, 9.0+PTX, sm_90 or compute_90"
            )
    return tuple(names)
