"""The page stands alone: its links lead into it or beside it, and every row is there."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest
from torchproof.report import page, proofs
from torchproof.report.page import sample

from torchproof import config

if TYPE_CHECKING:
    from pathlib import Path


class Reader(HTMLParser):
    """Gathers ids, links, sources and text."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids[found["id"]] += 1
        if tag == "a":
            self.links.append(found["href"])
        self.sources += [found[name] for name in ("src", "srcset") if name in found]
        if tag == "link":
            self.sources.append(found["href"])

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def read(tmp_path: Path) -> Reader:
    sample.write(tmp_path)
    reader = Reader()
    reader.feed(page.render(tmp_path, "pr", sample.results()))
    return reader


def test_every_row_is_there_and_every_id_once(read: Reader) -> None:
    assert {result.id for result in sample.results()} <= set(read.ids)
    assert set(read.ids.values()) == {1}


def test_every_link_leads_somewhere(read: Reader, tmp_path: Path) -> None:
    (tmp_path / "report.json").touch()
    for link in read.links:
        if link.startswith("#"):
            assert link[1:] in read.ids
        else:
            assert (tmp_path / link).is_file()


def test_nothing_is_fetched(read: Reader) -> None:
    assert read.sources
    assert all(source.startswith("data:") for source in read.sources)


def test_what_was_not_run_stands_with_its_reason(read: Reader) -> None:
    assert "no CPython 3.14 on this machine" in read.text


def test_the_grid_has_a_line_for_each_torch_platform_and_processor(read: Reader) -> None:
    lines = {(line.torch, line.platform, line.ran_on) for line in page.grid(sample.results())}
    assert {each for each in lines if each[0] == "2.13.0"} == {
        ("2.13.0", "linux-x86_64", "Intel with AMX"),
        ("2.13.0", "linux-x86_64", "Intel with AMX, held to avx2"),
        ("2.13.0", "linux-aarch64", "Arm Neoverse N1, emulated by qemu-user 10.0.13"),
    }
    assert "passed, emulated by qemu-user 10.0.13" in read.text


def test_a_log_is_shown_as_text(read: Reader) -> None:
    assert "<&>" in read.text


def test_a_page_of_no_rows_says_so(tmp_path: Path) -> None:
    reader = Reader()
    reader.feed(page.render(tmp_path, "none", ()))
    assert "No row was run" in reader.text
    assert "No row was timed." in reader.text


def test_records_of_older_kernels_and_emulators_are_counted_apart(tmp_path: Path) -> None:
    recorded = [row for record in sample.records() for row in proofs.results(record)]
    reader = Reader()
    reader.feed(page.render(tmp_path, "recorded", recorded))
    assert "5passed" in reader.text
    assert "1of the passed: emulated" in reader.text
    assert "1of the passed: with older kernels" in reader.text


def test_two_renderings_of_one_plot_are_the_same(tmp_path: Path) -> None:
    results = sample.results()
    assert page.plots.oracle(results) == page.plots.oracle(results)


def test_what_takes_a_gpu_is_not_run_with_its_command(read: Reader) -> None:
    for each in config.load().external_checks:
        assert f"{each.what}: {each.reason}; {each.command}" in read.text
