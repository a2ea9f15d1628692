"""matrix.toml beside what torchproof knows."""

from __future__ import annotations

from torchproof import config


def test_the_drivers_that_a_build_writes_down_are_the_known_ones() -> None:
    written = {row["version"]: row["driver"] for row in config.read_toml(config.PATH)["cuda"]}
    assert written == {row.version: row.driver for row in config.known().cuda}
