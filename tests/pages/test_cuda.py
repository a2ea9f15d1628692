"""The tables of docs/cuda.md are those of its JSON files, of which one is drawn, too."""

from __future__ import annotations

import json
import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_has_the_times_of_its_json() -> None:
    measured = json.loads((DOCS / "cuda.json").read_text(encoding="utf-8"))["rows"]
    times = {(row["case"], row["dtype"], row["who"]): row for row in measured}
    page = (DOCS / "cuda.md").read_text(encoding="utf-8")
    line = re.compile(r"^\| ([\dx ]+?)(?: \(a cell\))? \| (\w+16|\w+32) \| (.+) \|$", re.MULTILINE)
    lines = [(size.replace(" ", ""), dtype, rest) for size, dtype, rest in line.findall(page)]
    assert 2 * len(lines) == len(measured) > 0
    for case, dtype, rest in lines:
        both = [times[case, dtype, who] for who in ("lltm", "nn.LSTM")]
        steps = (" and ".join(f"{time:.2f}" for time in row["milliseconds"]) for row in both)
        on_gpu = (f"{row['milliseconds_on_gpu']:.2f}" for row in both)
        assert rest.split(" | ") == [*steps, *on_gpu]


def test_the_page_has_the_steps_of_groups_with_few_rows_and_many() -> None:
    """One by one under the lowest limit, in one launch under the group's own rows."""
    measured = json.loads((DOCS / "cuda-rows.json").read_text(encoding="utf-8"))["rows"]
    times = {
        (row["case"], row["most_rows_of_a_group"]): f"{row['milliseconds']:.2f}"
        for row in measured
        if (row["dtype"], row["work"]) == ("bfloat16", "training step")
    }
    page = (DOCS / "cuda.md").read_text(encoding="utf-8")
    line = re.compile(r"^\| ([\dx ]+) \| (\d+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)
    lines = [(size.replace(" ", ""), int(rows), *two) for size, rows, *two in line.findall(page)]
    assert lines
    for case, rows, one_by_one, together in lines:
        assert (one_by_one, together) == (times[case, min(16, rows)], times[case, rows])
