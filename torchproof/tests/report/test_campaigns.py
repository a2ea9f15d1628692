"""A campaign's figures are on the page, and a campaign without figures is not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchproof.files import kernels_hash
from torchproof.report import campaigns, page, run_report

from torchproof import config, terminal

RECORD = {
    "campaign": "faults",
    "seed": 7,
    "minutes": 15.0,
    "cases": 42,
    "unit": "faults",
    "findings": [],
    "not_run": ["no network: this user may not"],
    "figures": {"survived": 42},
    "date": "2026-11-22",
    "processor": "a processor",
    "commit": "abc1234",
    "kernels": kernels_hash(),
}

PROOF = {
    "campaign": "faults",
    "planted": 3,
    "found": 3,
    "date": "2026-11-20",
    "commit": "def5678",
}


def keep(root: Path, folder: str, **changed: object) -> None:
    path = root / folder / "faults.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(RECORD | changed), encoding="utf-8")


def keep_proof(root: Path, folder: str, **changed: object) -> None:
    path = root / folder / "proven" / "faults.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(PROOF | changed), encoding="utf-8")


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose campaigns are those of the report."""
    read_all = campaigns.read_all
    monkeypatch.setattr(campaigns, "read_all", lambda: read_all(tmp_path))
    return tmp_path


def test_every_named_campaign_has_figures_or_none(tmp_path: Path) -> None:
    keep(tmp_path, "docs/campaigns")
    found = campaigns.read_all(tmp_path)
    assert tuple(found) == config.project().campaigns
    assert [name for name, campaign in found.items() if campaign] == ["faults"]


def test_a_runs_own_figures_come_before_the_committed_ones(tmp_path: Path) -> None:
    keep(tmp_path, "docs/campaigns")
    keep(tmp_path, "build/campaigns", seed=8)
    campaign = campaigns.read_all(tmp_path)["faults"]
    assert campaign is not None
    assert campaign.seed == 8


@pytest.mark.parametrize(
    ("changed", "status"),
    [({}, "passed"), ({"findings": ["broken"]}, "failed"), ({"cases": 0}, "not run")],
)
def test_nothing_tried_is_not_passed(
    tmp_path: Path, changed: dict[str, object], status: str
) -> None:
    keep(tmp_path, "docs/campaigns", **changed)
    campaign = campaigns.read_all(tmp_path)["faults"]
    assert campaign is not None
    assert campaign.status == status


@pytest.mark.parametrize("changed", [{"kernels": "of another day"}, {"kernels": ""}])
def test_a_run_of_other_kernels_is_called_older(shown: Path, changed: dict[str, object]) -> None:
    """Everywhere: what it found of those kernels is no news of these."""
    older = "older than the kernels"
    keep(shown, "docs/campaigns")
    assert older not in terminal_text()
    assert older not in page.render(shown, "local", ()).partition('id="campaigns"')[2]
    keep(shown, "docs/campaigns", **changed)
    assert f"2026-11-22, {older}, a processor; " in terminal_text()
    assert older in page.render(shown, "local", ()).partition('id="campaigns"')[2]
    by_name = {campaign["name"]: campaign for campaign in campaigns.to_json()}
    assert by_name["faults"]["current"] is False


def terminal_text() -> str:
    """What the terminal has of the campaigns, as one line."""
    console = terminal.console(width=200, record=True)
    console.print(campaigns.summary())
    return " ".join(console.export_text().split())


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    keep(tmp_path, "docs/campaigns")
    file = tmp_path / "docs/campaigns/faults.json"
    file.write_text('{"campaign": "faults"}', encoding="utf-8")
    with pytest.raises(config.ConfigError, match=r"faults\.json: is no record of a campaign"):
        campaigns.read_all(tmp_path)


def test_a_damaged_proof_is_named(tmp_path: Path) -> None:
    keep(tmp_path, "docs/campaigns")
    keep_proof(tmp_path, "docs/campaigns")
    file = tmp_path / "docs/campaigns/proven/faults.json"
    file.write_text('{"planted": 3}', encoding="utf-8")
    with pytest.raises(config.ConfigError, match=r"faults\.json: is no record of planted bugs"):
        campaigns.read_all(tmp_path)


@pytest.mark.parametrize(
    ("changed", "status"),
    [({}, "passed"), ({"found": 2}, "failed"), ({"planted": 0, "found": 0}, "not run")],
)
def test_a_planted_bug_that_was_not_found_is_a_failed_proof(
    tmp_path: Path, changed: dict[str, object], status: str
) -> None:
    keep(tmp_path, "docs/campaigns")
    keep_proof(tmp_path, "docs/campaigns", **changed)
    campaign = campaigns.read_all(tmp_path)["faults"]
    assert campaign is not None
    assert campaign.proven is not None
    assert campaign.proven.status == status


def test_a_committed_proof_is_that_of_a_run_of_today(tmp_path: Path) -> None:
    keep(tmp_path, "build/campaigns")
    keep_proof(tmp_path, "docs/campaigns")
    campaign = campaigns.read_all(tmp_path)["faults"]
    assert campaign is not None
    assert campaign.proven is not None
    assert campaign.proven.commit == "def5678"


def test_the_page_has_the_figures(shown: Path) -> None:
    keep(shown, "docs/campaigns", findings=["matrix: <b> lives on"])
    keep_proof(shown, "docs/campaigns")
    text = page.render(shown, "local", ())
    for words in (
        "42 faults",
        "survived: 42",
        "seed 7",
        "a processor",
        "matrix: &lt;b&gt; lives on",
        "3 of 3 found",
        "2026-11-20, def5678",
    ):
        assert words in text
    assert "there is no <code>docs/campaigns/mutants.json</code>" in text


def test_a_campaign_is_called_proven_only_where_its_proof_is_kept(shown: Path) -> None:
    keep(shown, "docs/campaigns")
    text = page.render(shown, "local", ())
    assert "not proven" in text
    assert "of 3 found" not in text


def test_report_json_has_the_campaigns(shown: Path) -> None:
    keep(shown, "docs/campaigns")
    keep_proof(shown, "docs/campaigns")
    document = run_report.write(shown / "matrix", "local", ())
    by_name = {campaign["name"]: campaign for campaign in document["campaigns"]}
    assert list(by_name) == list(config.project().campaigns)
    assert by_name["faults"]["cases"] == 42
    assert by_name["faults"]["status"] == "passed"
    assert by_name["faults"]["current"] is True
    assert by_name["faults"]["proven"]["date"] == "2026-11-20"
    assert by_name["mutants"]["status"] == "not run"
    assert by_name["mutants"]["reason"] == "there is no docs/campaigns/mutants.json"


@pytest.mark.parametrize("width", [60, 200])
def test_the_terminal_has_the_campaigns(width: int, shown: Path) -> None:
    keep(shown, "docs/campaigns")
    keep_proof(shown, "docs/campaigns")
    console = terminal.console(width=width, record=True)
    console.print(campaigns.summary())
    text = " ".join(console.export_text().split())
    assert "faults: passed, 42 faults, 0 findings, seed 7, 2026-11-22, a processor; " in text
    assert "; 3 of 3 planted bugs found; survived: 42" in text
    assert "mutants: not run: there is no docs/campaigns/mutants.json" in text


def test_the_terminal_says_what_is_not_proven(shown: Path) -> None:
    keep(shown, "docs/campaigns", seed=None, findings=["it hangs"], figures={})
    console = terminal.console(width=200, record=True)
    console.print(run_report.summary(()))
    text = console.export_text()
    assert "faults: failed, 42 faults, 1 finding, 2026-11-22, a processor; planted bugs: " in text
    assert "planted bugs: not proven\n" in text.replace(" \n", "\n")
