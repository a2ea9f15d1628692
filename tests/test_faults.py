"""The programs that the campaign `faults` disturbs."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "campaign"))
import faults


def test_a_matrix_that_nothing_disturbs_has_rows_that_passed(tmp_path: Path) -> None:
    campaign = faults.Campaign(tmp_path, random.Random(1), time.monotonic() + 60)
    found, seconds = campaign.undisturbed(faults.MATRIX)
    assert {status for _, status, *_ in found} == {"passed"}
    assert seconds > faults.MATRIX.first_s
