"""From a Python module to a CUDA kernel: the road of torch's tutorial, in today's terms.

    1. a Python module of torch operations
    2. the same operations in C++, with a backward of their own, built just in time
    3. the same sources, built ahead of time into a wheel
    4. a fused kernel: this project's
    5. and all that again on a GPU, where the fused kernel is CUDA

Each step is checked against the one before, outputs and gradients, and then all are timed in one
run, beside the figures that the tutorial reported. The sources of steps 2 and 3 are in
examples/scratch_extension.

    python examples/lltm_from_scratch.py [--out FOLDER]

After the tutorial "Custom C++ and CUDA Extensions".
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from shared.options import folder, positive
from shared.picture import bars
from shared.timing import Timing, interleaved
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import cpp_extension

import lltm

SOURCES = Path(__file__).parent / "scratch_extension"
BATCH, FEATURES, STATE = 16, 32, 128  # the tutorial's
NO_GPU = "not run: no GPU"

Cell = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Step:
    """A stretch of the road.

    Attributes:
        name: what it is.
        cell: ``(input, weights, bias, old_h, old_cell) -> (new_h, new_cell)``.
        device: where it runs.
        reported: the tutorial's microseconds, forward and backward, where it had this step.
    """

    name: str
    cell: Cell
    device: str
    reported: tuple[int, int] | None


# 1. Python --------------------------------------------------------------------------------------


class LLTM(nn.Module):
    """The tutorial's module; the steps after it are functions of the same arguments."""

    def __init__(self, input_features: int, state_size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(3 * state_size, input_features + state_size))
        self.bias = nn.Parameter(torch.empty(3 * state_size))
        bound = 1.0 / math.sqrt(state_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """``input`` [B, F], ``state`` two of [B, S] -> the new state."""
        return python_cell(input, self.weights, self.bias, *state)


def python_cell(
    input: Tensor, weights: Tensor, bias: Tensor, old_h: Tensor, old_cell: Tensor
) -> tuple[Tensor, Tensor]:
    """Six operations and their derivatives, each a call into torch with a tensor of its own."""
    x = torch.cat([old_h, input], dim=1)
    z_input, z_output, z_candidate = F.linear(x, weights, bias).chunk(3, dim=1)
    new_cell = old_cell + F.elu(z_candidate) * torch.sigmoid(z_input)
    return torch.tanh(new_cell) * torch.sigmoid(z_output), new_cell


# 2. and 3. C++ ----------------------------------------------------------------------------------


def cpp_cell(namespace: str) -> Cell:
    """The C++ op of a loaded library, with its backward, as a function for autograd."""
    ops = getattr(torch.ops, namespace)

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Tensor) -> tuple[Tensor, Tensor]:
            new_h, new_cell, *activations = ops.forward(*arguments)
            ctx.save_for_backward(new_cell, *activations, arguments[1])
            return new_h, new_cell

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, grad_h: Tensor, grad_cell: Tensor) -> tuple[Tensor, ...]:
            return tuple(ops.backward(grad_h, grad_cell, *ctx.saved_tensors))

    return Function.apply


def seconds(action: Callable[[], object]) -> float:
    """How long an action takes."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def build_just_in_time(folder: Path) -> dict[str, float]:
    """Compile and load; again with nothing changed; again with one of the two sources changed."""
    sources = [folder / "binding.cpp", folder / "cell.cpp"]

    def load() -> None:
        cpp_extension.load(
            "scratch_jit",
            [str(source) for source in sources],
            extra_cflags=["-O2", "-g0", "-DSCRATCH_NAMESPACE=scratch_jit"],
            build_directory=str(folder),
            is_python_module=False,
            verbose=True,
        )

    def ninja() -> None:
        # The very file that load() wrote. load() itself would load the result beside what is
        # loaded already, and an op can be defined only once in a process.
        subprocess.run(["ninja", "-v"], cwd=folder, check=True)

    print("\njust in time, the first build:", flush=True)
    took = {"first": seconds(load)}
    print("\njust in time, nothing changed:", flush=True)
    took["unchanged"] = seconds(ninja)
    print("\njust in time, cell.cpp changed:", flush=True)
    sources[1].touch()
    took["one source changed"] = seconds(ninja)
    return took


def build_ahead_of_time(folder: Path) -> dict[str, float]:
    """Make a wheel, as ``pip wheel --no-build-isolation .`` does, and load the library in it."""
    print("\nahead of time:", flush=True)
    hook = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    took = seconds(lambda: subprocess.run([sys.executable, "-c", hook], cwd=folder, check=True))
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (library,) = (name for name in archive.namelist() if Path(name).suffix in (".so", ".pyd"))
        archive.extract(library, folder)
    torch.ops.load_library(folder / library)
    print(f"{wheel.name} holds {library}")
    return {"wheel": took}


def build() -> dict[str, float]:
    """Build the extension both ways, outside the checkout; load both."""
    # ninja is among the interpreter's own scripts, which need not be on PATH.
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    took = {}
    with tempfile.TemporaryDirectory() as scratch:
        for way in (build_just_in_time, build_ahead_of_time):
            folder = Path(scratch) / way.__name__
            shutil.copytree(SOURCES, folder)
            took |= {f"{way.__name__}, {what}": value for what, value in way(folder).items()}
    return took


# 4. and 5. Kernels, and a GPU -------------------------------------------------------------------


def fused_cell(backend: str) -> Cell:
    """This project's op with the named backend."""

    def cell(*arguments: Tensor) -> tuple[Tensor, Tensor]:
        return lltm.lltm_cell(*arguments, backend=backend)

    return cell


def road() -> list[Step]:
    """Every step, with the tutorial's own figures."""
    return [
        Step("Python module", python_cell, "cpu", (506, 445)),
        Step("C++ op, just in time", cpp_cell("scratch_jit"), "cpu", (349, 444)),
        Step("C++ op, ahead of time", cpp_cell("scratch_ahead"), "cpu", None),
        Step("fused kernel", fused_cell("fused"), "cpu", None),
        Step("Python module", python_cell, "cuda", (188, 411)),
        Step("C++ op, just in time", cpp_cell("scratch_jit"), "cuda", (150, 393)),
        Step("CUDA kernel", fused_cell("cuda"), "cuda", (129, 305)),
    ]


def obstacle(step: Step) -> str | None:
    """Why a step cannot run here, if it cannot."""
    if step.device == "cpu":
        return None
    if not torch.cuda.is_available():
        return NO_GPU
    has_kernel = "cuda" in {backend.name for backend in lltm.backends.available()}
    if step.name == "CUDA kernel" and not has_kernel:
        return "not run: this lltm was built without CUDA"
    return None


# Check and time ---------------------------------------------------------------------------------


def arguments_on(device: str) -> tuple[Tensor, ...]:
    """input, weights, bias, old_h, old_cell: the same numbers on every device."""
    torch.manual_seed(0)
    module = LLTM(FEATURES, STATE)
    tensors = [torch.randn(BATCH, FEATURES), module.weights, module.bias]
    tensors += [torch.randn(BATCH, STATE), torch.randn(BATCH, STATE)]
    return tuple(each.detach().to(device).requires_grad_() for each in tensors)


def results(step: Step) -> list[Tensor]:
    """Outputs and gradients of a step, on the CPU."""
    arguments = arguments_on(step.device)
    outputs = step.cell(*arguments)
    gradients = torch.autograd.grad(sum(output.sum() for output in outputs), arguments)
    return [each.detach().cpu() for each in (*outputs, *gradients)]


def check(steps: list[Step]) -> None:
    """Each step against the one before."""
    before = results(steps[0])
    for step in steps[1:]:
        found = results(step)
        torch.testing.assert_close(found, before, msg=lambda text, step=step: f"{step}: {text}")
        before = found
    print(f"\n{len(steps)} steps checked, each against the one before: outputs and gradients agree")


def measure(steps: list[Step], rounds: int) -> dict[Step, Timing]:
    """The steps of each device, turn by turn, as the tutorial timed them."""
    timings: dict[Step, Timing] = {}
    for device in dict.fromkeys(step.device for step in steps):
        input, weights, bias, h, c = arguments_on(device)
        input, h, c = (each.detach() for each in (input, h, c))  # as data, without a gradient

        def loss(step: Step, tensors: tuple[Tensor, ...] = (input, weights, bias, h, c)) -> Tensor:
            new_h, new_cell = step.cell(*tensors)
            return new_h.sum() + new_cell.sum()

        here = {step.name: step for step in steps if step.device == device}
        functions = {name: (lambda step=step: loss(step)) for name, step in here.items()}
        found = interleaved(functions, (weights, bias), rounds, device)
        timings |= {here[name]: timing for name, timing in found.items()}
    return timings


def show(steps: list[Step], timings: dict[Step, Timing]) -> None:
    """One table: what was measured here, and what the tutorial reported."""
    table = Table(
        title=f"microseconds, B, F, S = {BATCH}, {FEATURES}, {STATE}, float32; then: the tutorial"
    )
    table.add_column("step")
    table.add_column("device")
    for name in ("forward", "backward", "forward then", "backward then"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in steps:
        reported = map(str, step.reported) if step.reported else ("-", "-")
        if step in timings:
            here = (f"{timings[step].forward:.0f}", f"{timings[step].backward:.0f}")
        else:
            here = (obstacle(step) or "", "")
        table.add_row(step.name, step.device, *here, *reported)
    Console().print(table)


def plot(steps: list[Step], timings: dict[Step, Timing], path: Path) -> None:
    """The table as bars: what was measured here beside what the tutorial reported."""
    here = {
        step: {"forward": timing.forward, "backward": timing.backward}
        for step, timing in timings.items()
    }
    then = {
        step: {"forward, tutorial": step.reported[0], "backward, tutorial": step.reported[1]}
        for step in steps
        if step.reported
    }
    rows = {
        f"{step.name}\n{step.device}" + (f", {why}" if (why := obstacle(step)) else ""): here.get(
            step, {}
        )
        | then.get(step, {})
        for step in steps
    }
    bars(rows, f"microseconds; B, F, S = {BATCH}, {FEATURES}, {STATE}, float32", path)


def main() -> None:
    """Build, check, time."""
    parser = argparse.ArgumentParser(description="From a Python module to a CUDA kernel.")
    parser.add_argument("--rounds", type=positive, default=1000, help="timed calls of each step")
    parser.add_argument("--out", type=folder, default=Path("lltm_from_scratch_output"))
    options = parser.parse_args()

    builds = build()
    # A cell this small gives a second thread nothing to do, and a busy neighbour would stop both.
    torch.set_num_threads(1)
    steps = road()
    running = [step for step in steps if obstacle(step) is None]
    check(running)
    timings = measure(running, options.rounds)
    show(steps, timings)
    for what, took in builds.items():
        print(f"{what}: {took:.1f} s")

    options.out.mkdir(parents=True, exist_ok=True)
    rows = [
        {"step": step.name, "device": step.device, "reported": step.reported}
        | (asdict(timings[step]) if step in timings else {"obstacle": obstacle(step)})
        for step in steps
    ]
    twin = {"steps": rows, "build_seconds": builds}
    (options.out / "table.json").write_text(json.dumps(twin, indent=1) + "\n", encoding="utf-8")
    plot(steps, timings, options.out / "table.svg")
    print(
        f"the table is in {options.out / 'table.json'}, its picture in {options.out / 'table.svg'}"
    )


if __name__ == "__main__":
    main()
