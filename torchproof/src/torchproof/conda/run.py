"""The session: a channel, the packages, their tests and audit, environments, proofs."""

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial

from torchproof.conda import channel, package_builder, rendered
from torchproof.conda.package_proofs import prove_installation, prove_metadata, prove_reproducible
from torchproof.conda.packages import Package, make_packages, test_package
from torchproof.conda.session import Session
from torchproof.conda.suite import solve_for, test_environment, wanted
from torchproof.conda.summary import PackageResult, ProofResult, RenderedResult, Results
from torchproof.conda.worker_pool import WorkerPool, worker_pool
from torchproof.config import ROOT, project
from torchproof.files import write_json

# What the channel, the unpacked wheels, the builds and the prefixes take at most.
FREE_BYTES = 9 << 30
# What a build string has of the variant's values.
HASH = re.compile(r"h[0-9a-f]{7}")


def run(session: Session) -> Results:
    """Do everything, and write `report.json` beside it.

    Raises:
        ChannelFailed, NoWheel, BuildFailed: a part cannot be made.
        Unsolvable: the packages cannot be installed.
    """
    started = time.monotonic()
    shutil.rmtree(session.logs, ignore_errors=True)
    shutil.rmtree(session.scratch, ignore_errors=True)
    # rattler and rattler-build keep what they unpack there, and nothing in the user's own cache.
    os.environ["RATTLER_CACHE_DIR"] = str(session.cache.parent)
    with worker_pool(session.steps) as workers:
        proofs = make_channel(session, workers)
        variants = package_builder.local_variants(
            session.tools, session.targets, session.context.variants
        )
        outputs = [output for output in variants if output.name in session.packages]
        packages: dict[str, Package] = {}
        tested: dict[str, Future[PackageResult]] = {}
        # What needs no more than one package fills the time until the last of them is there.
        for package in make_packages(session, workers, outputs):
            key = package.output.key
            packages[key] = package
            if key == outputs[0].key:  # the stable one for the CPU
                proofs.append(prove_reproducible(session, workers, package))
            tested[key] = test_package(session, workers, package)
        solutions = [(want, solve_for(session, want)) for want in wanted(session)]
        # The longest first.
        environments = [test_environment(session, workers, *solved) for solved in solutions]
        proofs.append(prove_installation(session, workers, packages.values(), solutions))
        # Beside the last of the work, as the disk is what it waits for.
        wheels = partial(shutil.rmtree, session.channel.scratch, ignore_errors=True)
        workers.submit("clean up after the channel", wheels)
    results = Results(
        tool=session.tool,
        channel_bytes=session.channel.size,
        channel_packages=len(session.channel.packages),
        seconds=0.0,
        packages=tuple(collect_result(session, tested[output.key]) for output in outputs),
        environments=tuple(environment.result() for environment in environments),
        proofs=tuple(proof for shown in proofs for proof in shown.result()),
        rendered=tuple(all_rendered(session, packages.values())),
        not_run=tuple(not_run(session)),
    )
    shutil.rmtree(session.scratch, ignore_errors=True)
    results = dataclasses.replace(results, seconds=time.monotonic() - started)
    write_json(session.folder / "report.json", results.to_json())
    return results


def check_disk() -> None:
    """Stop before a full disk does."""
    free = shutil.disk_usage(ROOT).free
    if free < FREE_BYTES:
        raise channel.ChannelFailed(
            f"{free / 2**30:.1f} GiB of disk are free, torchproof conda may need "
            f"{FREE_BYTES >> 30} GiB: free some space and run it again"
        )


def collect_result(session: Session, tested: Future[PackageResult]) -> PackageResult:
    """A package's result, and where its logs are if something failed."""
    result = tested.result()
    if not result.ok:
        named = f"{result.name} {result.build}"
        session.steps.say(f"{named} failed; its logs are in {session.logs}", "red")
    return result


def make_channel(session: Session, workers: WorkerPool) -> list[Future[list[ProofResult]]]:
    """Make the parts of the channel that are missing or changed, and show what needs none of it."""
    wanted = channel.parts(
        session.channel, session.matrix, session.facts, session.tools, session.targets
    )
    session.channel.forget_others(wanted)
    missing = session.channel.missing(wanted)
    session.steps.say(f"channel: {len(wanted) - len(missing)} of {len(wanted)} parts kept")
    if missing:
        check_disk()
    # Those that take longest first, so that the workers end together.
    missing.sort(key=lambda part: not part.name.startswith("wheels"))
    made = [
        workers.submit(f"channel: {part.name}", partial(session.channel.make, part))
        for part in missing
    ]
    metadata = prove_metadata(session, workers)
    for part in made:
        part.result()
    with session.steps.step("channel: index"):
        session.channel.index()
    return metadata


def all_rendered(session: Session, packages: Iterable[Package]) -> list[RenderedResult]:
    """Every variant on every platform, and whether it was built here.

    A local build has another hash, as it is linked against this machine's C library.
    """
    built = {_variant(package.output) for package in packages}
    return [
        RenderedResult(
            platform=platform,
            name=output.name,
            build=output.build,
            built=platform == package_builder.PLATFORM and _variant(output) in built,
        )
        for platform in session.facts.platforms
        for output in rendered.outputs(platform)
    ]


def _variant(output: rendered.Output) -> tuple[str, str]:
    return output.name, HASH.sub("", output.build)


def not_run(session: Session) -> list[str]:
    """What this machine could not show, and why."""
    found = []
    native = project().conda.native
    if native and native not in session.packages:
        found.append(f"{native}: `torchproof conda --native` builds and tests it, too")
    if not project().conda.proofs:
        found.append("proofs of the packages: `conda` of [project] names no folder of them")
    if len({target.series for target in session.targets}) == 1:
        found.append("a second Python: this machine has one that can be packaged")
    return found + _cuda_not_run(session) if session.facts.cuda else found


def _cuda_not_run(session: Session) -> list[str]:
    if session.cuda is None:
        return ["the CUDA package: there is no nvcc on this machine"]
    built = package_builder.LOCAL_ARCHITECTURES
    every = session.matrix.architectures(session.cuda)
    left = ", ".join(name for name in every if name not in built.split(";"))
    return [
        f"the CUDA package for {left}: built here for {built} alone, which is quick",
        "the CUDA package on a GPU: installed and tested here on the CPU",
    ]
