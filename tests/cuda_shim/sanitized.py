"""Run the cases through the kernels with the address and undefined-behaviour sanitizers.

A process of its own, because the sanitizers' libraries must be loaded before anything else:
``python sanitized.py LIBRARY``. Ends with a line that says how many cases ran.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "op"))

import cases
import torch
from cuda_shim import library

MOST_STEPS = 6
"""Under the sanitizers a long sequence takes long and shows nothing that a short one does not."""

ORDINARY = {"values": "normal", "alpha": 1.0}
"""Other numbers lie at the same addresses, and none becomes an index."""


def main() -> None:
    """Outputs and gradients; a finding of a sanitizer ends the process."""
    torch.set_num_threads(1)
    shim = library.load(Path(sys.argv[1]))
    ran = 0
    for case in cases.CASES:
        if (case.steps or 0) > MOST_STEPS or replace(case, **ORDINARY) != case:
            continue
        # In turn, for a kernel is one source for every dtype.
        dtype = cases.DTYPES[ran % len(cases.DTYPES)]
        arguments = case.arguments(dtype).leaves()
        outputs = getattr(shim, case.op)(*arguments)
        for actual, expected in zip(outputs, cases.expected_outputs(case, arguments), strict=True):
            cases.assert_close(actual, expected, str(cases.identify(case)))
        cases.gradients(outputs, arguments)
        ran += 1
    print(f"{ran} cases, no finding")


if __name__ == "__main__":
    main()
