"""`torchproof page [FILE]`: look at the page in a real browser, as a reader would.

Checks a made-up report that holds every kind of row, and FILE (the report of the last run by
default, where there is one). Keeps a screenshot at each width beside the page.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from torchproof import terminal
from torchproof.config import ROOT
from torchproof.report import page
from torchproof.report.page import sample

REPORT = ROOT / "build" / "matrix" / "index.html"
SAMPLE = ROOT / "build" / "matrix-sample"
WIDTHS = (1280, 400)
HEIGHT = 900
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# A closed machine refuses the browser's own calls home; none of these changes how a page looks.
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OVERFLOWING = """() => [...document.querySelectorAll("body *")]
  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre"))
  .map((e) => e.outerHTML.slice(0, 120))"""
IS_SHOWN = """(id) => {
  const target = document.getElementById(id), box = target.getBoundingClientRect();
  return target.open && box.top < innerHeight && box.bottom > 0;
}"""


def find_browser() -> str:
    """Chromium's program: the one on PATH, or the distribution's, installed on the spot."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    if shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
            check=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if found := shutil.which("chromium"):
            return found
    raise SystemExit("no Chromium on this machine: install it with `apt-get install chromium`")


def look(browser: Browser, file: Path, width: int) -> list[str]:
    """What a reader would stumble over at this width; keeps a screenshot."""
    window = browser.new_page(viewport={"width": width, "height": HEIGHT})
    troubles: list[str] = []
    window.on(
        "console",
        lambda message: (
            troubles.append(f"console {message.type}: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    window.on("pageerror", lambda error: troubles.append(f"script: {error}"))
    window.on(
        "request",
        lambda request: (
            troubles.append(f"asks for {request.url}")
            if not request.url.startswith(("file:", "data:"))
            else None
        ),
    )
    window.goto(file.as_uri())
    window.screenshot(path=file.with_name(f"{file.stem}-{width}.png"), full_page=True)
    troubles += [f"overflows: {element}" for element in window.evaluate(OVERFLOWING)]
    troubles += click_through(window)
    if window.evaluate("document.documentElement.scrollWidth > innerWidth"):
        troubles.append("the page scrolls sideways")
    window.close()
    return [f"{file.name} at {width} pixels: {trouble}" for trouble in troubles]


def click_through(window: Page) -> list[str]:
    """Click every cell of the grid; its row must open and come into view."""
    troubles = []
    cells = window.locator("#grid a.chip")
    for at in range(cells.count()):
        window.evaluate("document.querySelectorAll('details').forEach((d) => (d.open = false))")
        cell = cells.nth(at)
        target = (cell.get_attribute("href") or "#").removeprefix("#")
        cell.click()
        try:
            window.wait_for_function(IS_SHOWN, arg=target, timeout=3000)
        except Exception as error:  # Playwright's timeout, or a target that is not there
            troubles.append(f"the cell of {target} leads nowhere: {error}")
            continue
        if window.locator(f"[id='{target}'] summary").count() == 0:
            troubles.append(f"the row {target} has no text")
    if cells.count() == 0:
        troubles.append("the grid has no cells")
    return troubles


def make_sample() -> Path:
    """Write the made-up report."""
    shutil.rmtree(SAMPLE, ignore_errors=True)
    sample.write(SAMPLE)
    file = SAMPLE / "index.html"
    file.write_text(page.render(SAMPLE, "pr", sample.results(), sample.records()), encoding="utf-8")
    return file


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when a reader stumbles over nothing."""
    parser = argparse.ArgumentParser(prog="torchproof page", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=REPORT, help="default: %(default)s")
    file = parser.parse_args(argv).file
    if file != REPORT and not file.is_file():
        parser.error(f"{file} is not there; name the index.html of a report")
    files = [make_sample(), *([file.resolve()] if file.is_file() else [])]
    console = terminal.console()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        # Chromium's sandbox refuses to start for root.
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(
            executable_path=find_browser(),
            args=[*QUIET, *root],
            env={**os.environ, "HOME": profile},
        )
        looks = [look(browser, each, width) for each in files for width in WIDTHS]
        browser.close()
    troubles = [trouble for found in looks for trouble in found]
    for trouble in troubles:
        console.print(trouble, style="red")
    console.print(
        f"{len(files)} page{'s' if len(files) > 1 else ''} at {' and '.join(map(str, WIDTHS))} "
        f"pixels, {len(troubles)} trouble{'s' if len(troubles) != 1 else ''}; screenshots in "
        f"{', '.join(str(f.parent) for f in files)}"
    )
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
