"""Which command lines the campaigns refuse, before they build anything."""

from __future__ import annotations

import importlib
import sys

import pytest


def refusal(
    campaign: str,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What a campaign prints before it ends."""
    if campaign == "mutants":
        for needed in ("tree_sitter", "coverage"):
            pytest.importorskip(needed, reason="not run: `nox -s mutants` installs what it needs")
    monkeypatch.setattr(sys, "argv", [campaign, *arguments])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(campaign).main()
    return capsys.readouterr().err


@pytest.mark.parametrize("campaign", ["faults", "fuzz", "mutants", "sanitize"])
@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_a_budget_that_is_none_is_refused(
    campaign: str,
    minutes: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = refusal(campaign, ["--minutes", minutes], monkeypatch, capsys)
    assert f"argument --minutes: expected more than 0 minutes, got {minutes}" in printed


@pytest.mark.parametrize(("campaign", "option"), [("faults", "--cases"), ("mutants", "--jobs")])
def test_a_number_below_1_is_refused(
    campaign: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = refusal(campaign, [option, "0"], monkeypatch, capsys)
    assert f"argument {option}: expected 1 or more, got 0" in printed


@pytest.mark.parametrize(
    ("campaign", "part"), [("mutants", "audit"), ("sanitize", "thread-stable")]
)
def test_a_part_of_a_campaign_is_not_kept_as_the_whole(
    campaign: str, part: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = refusal(campaign, ["--only", part, "--record"], monkeypatch, capsys)
    assert "--record keeps the figures of a whole campaign: leave --only out" in printed
