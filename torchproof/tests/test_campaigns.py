"""A campaign's figures are on the page, and a campaign without figures is not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from torchproof.report import campaigns, page

from torchproof import config

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
}


def keep(root: Path, folder: str, **changed: object) -> None:
    path = root / folder / "faults.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(RECORD | changed), encoding="utf-8")


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


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    keep(tmp_path, "docs/campaigns")
    file = tmp_path / "docs/campaigns/faults.json"
    file.write_text('{"campaign": "faults"}', encoding="utf-8")
    with pytest.raises(config.ConfigError, match=r"faults\.json: is no record of a campaign"):
        campaigns.read_all(tmp_path)


def test_the_page_has_the_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, "docs/campaigns", findings=["matrix: <b> lives on"])
    found = campaigns.read_all(tmp_path)
    monkeypatch.setattr(campaigns, "read_all", lambda: found)
    text = page.render(tmp_path, "local", ())
    for words in (
        "42 faults",
        "survived: 42",
        "seed 7",
        "a processor",
        "matrix: &lt;b&gt; lives on",
    ):
        assert words in text
    assert "there is no <code>docs/campaigns/mutants.json</code>" in text
