"""The session: a channel, the packages, their tests and audit, environments, proofs."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from matrix.conda import build, channel, rendered
from matrix.conda.packages import forget_others, make_package
from matrix.conda.proofs import prove, write_context
from matrix.conda.results import RenderedResult, Results
from matrix.conda.suite import make_environment, test_environment
from matrix.files import write_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.conda.results import PackageResult
    from matrix.conda.session import Session


def run(this: Session) -> Results:
    """Do everything, and write `report.json` beside it.

    Raises:
        ChannelFailed, NoWheel, BuildFailed: a part cannot be made.
        Unsolvable: the packages cannot be installed.
    """
    started = time.monotonic()
    shutil.rmtree(this.logs, ignore_errors=True)
    # rattler and rattler-build keep what they unpack there, and nothing in the user's own cache.
    os.environ["RATTLER_CACHE_DIR"] = str(this.cache.parent)
    build.reproducibly()
    make_channel(this)
    outputs = build.local_variants(this.tools, this.places, this.shop.variants)
    forget_others(this.shop.output, outputs)
    packages = [make_package(this, output) for output in outputs]
    installed = [(place, make_environment(this, place)) for place in this.places]
    write_context(this, packages, installed)
    results = Results(
        tool=this.tool,
        channel_bytes=this.channel.size,
        channel_packages=len(list(this.channel.folder.glob("*/*.conda"))),
        seconds=0.0,
        packages=tuple(packages),
        environments=tuple(
            test_environment(this, place, environment, full=place is this.places[0])
            for place, environment in installed
        ),
        proofs=tuple(prove(this)),
        rendered=tuple(all_rendered(this, packages)),
        not_run=tuple(not_run(this)),
    )
    results = dataclasses.replace(results, seconds=time.monotonic() - started)
    write_json(this.folder / "report.json", results.to_json())
    return results


def make_channel(this: Session) -> None:
    """Make the parts of the channel that are missing or changed."""
    wanted = channel.parts(this.channel, this.matrix, this.facts, this.tools, this.places)
    missing = this.channel.missing(wanted)
    this.steps.say(f"channel: {len(wanted) - len(missing)} of {len(wanted)} parts kept")

    def make(part: channel.Part) -> None:
        with this.steps.step(f"channel: {part.name}"):
            this.channel.make(part)

    # Unpacking a wheel and packing it again each keep one processor busy.
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(make, missing))
    if missing:
        with this.steps.step("channel: index"):
            this.channel.index()


def all_rendered(this: Session, packages: Iterable[PackageResult]) -> list[RenderedResult]:
    """Every variant on every platform, and whether it was built here.

    A local build has another hash, as it is linked against this machine's C library.
    """
    built = {(package.name, package.build.split("_")[0]) for package in packages}
    return [
        RenderedResult(
            platform=platform,
            name=output.name,
            build=output.build,
            built=platform == build.PLATFORM and (output.name, output.build.split("_")[0]) in built,
        )
        for platform in this.facts.platforms
        for output in rendered.outputs(platform)
    ]


def not_run(this: Session) -> list[str]:
    """What this machine could not show, and why."""
    found = []
    if len({place.series for place in this.places}) == 1:
        found.append("a second Python: this machine has one that can be packaged")
    if this.tools.nvcc is None:
        found.append("the CUDA package: there is no nvcc on this machine")
    elif not build.CUDA_SOURCES.is_dir():
        found.append("the CUDA package: csrc/cuda has no sources")
    return found
