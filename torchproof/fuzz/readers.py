"""Coverage-guided fuzz of what reads files of strangers: `readers.py TARGET --seconds N --seed N`.

A target ends every input in a result or in the one error that it documents. Whatever else is raised
is a crash: its input is kept in torchproof/tests/crashes/TARGET, where test_crashes.py replays it.
`--planted` takes a check out of the reader first, which the fuzz must notice.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["torchproof", "packaging", "zipfile", "tomllib"]):
    from targets import TARGETS

CRASHES = Path(__file__).parents[1] / "tests" / "crashes"
# Larger inputs reach nothing more: what is read of them has limits of its own.
LONGEST = 1 << 14


def main() -> None:
    """Fuzz one target; the exit status is 77 when it crashed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--crashes", type=Path, default=CRASHES)
    parser.add_argument("--planted", action="store_true", help="with a bug that is to be found")
    chosen = parser.parse_args()
    target = TARGETS[chosen.target]
    if chosen.planted:
        target.plant()
    crashes = chosen.crashes / chosen.target
    crashes.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for number, seed in enumerate(target.seeds()):
            (corpus / str(number)).write_bytes(seed)
        scratch = Path(folder, target.file)
        options = [f"-max_total_time={chosen.seconds}", f"-seed={chosen.seed}"]
        options += [f"-artifact_prefix={crashes}/", f"-max_len={LONGEST}", "-timeout=30"]
        options += ["-rss_limit_mb=2048", "-print_final_stats=1", str(corpus)]
        atheris.Setup([sys.argv[0], *options], lambda data: target.read(data, scratch))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
