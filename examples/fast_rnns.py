"""How far can an LSTM be fused without a kernel of one's own? The fast-RNN story, retold and timed.

TorchScript was the first to fuse a recurrent cell written in Python into one kernel: the gates
vanish into a single node of its graph. What stayed outside was the gradient of a bias: it was
broadcast over the batch, so its gradient is a sum over the batch, once a step. Multiplying all
inputs at once before the loop, and adding the bias there, leaves one sum for all steps.

The table compares each stage of that story with ``nn.LSTM``, with ``torch.compile``, which tells
the story again by other means, and with ``lltm``. The same two fusers then meet a function without
any matrix: the intersection over union of boxes, fused_iou.py.

    python examples/fast_rnns.py [--out FOLDER] [--device cuda]

After "Optimizing CUDA Recurrent Neural Networks with TorchScript" and "Fast LSTMs in PyTorch".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import fused_iou
import torch
from shared.fusers import compiled, script
from shared.options import DEVICES, device_here, folder, positive
from shared.picture import bars
from shared.timing import interleaved, show, table
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import lltm

# Of cuDNN's LSTM: what premultiplied TorchScript was reported to take, backward and in all.
REPORTED = {"TorchScript, premultiplied": (1.33, 1.25)}
# float32, gradients that are sums over T * B terms.
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
BASELINE = "nn.LSTM"

# Operations of a graph that compute nothing: they ask whether the fast path still fits.
QUESTIONS = ("aten::size", "aten::_size_if_not_equal", "aten::__is", "aten::all")

Loop = Callable[..., Tensor]


# The stages -------------------------------------------------------------------------------------
# Tensors: input [T, B, F], h and c [B, S], w_ih [4S, F], w_hh [4S, S], b_ih and b_hh [4S].


def gates_to_state(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """``gates`` [B, 4S], ``c`` [B, S] -> the new hidden and cell state."""
    input_gate, forget_gate, candidate, output_gate = gates.chunk(4, 1)
    c = torch.sigmoid(forget_gate) * c + torch.sigmoid(input_gate) * torch.tanh(candidate)
    return torch.sigmoid(output_gate) * torch.tanh(c), c


def cell(
    x: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """One step, everything in it: what one would write first."""
    gates = torch.mm(x, w_ih.t()) + torch.mm(h, w_hh.t()) + b_ih + b_hh
    return gates_to_state(gates, c)


def plain_loop(
    input: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> Tensor:
    """The cell, once a step."""
    outputs: list[Tensor] = []
    for x in input.unbind(0):
        h, c = cell(x, h, c, w_ih, w_hh, b_ih, b_hh)
        outputs.append(h)
    return torch.stack(outputs)


def premultiplied_loop(
    input: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> Tensor:
    """All inputs multiplied at once; the biases still added, their gradients summed, per step."""
    outputs: list[Tensor] = []
    for x in torch.matmul(input, w_ih.t()).unbind(0):
        gates = x + torch.mm(h, w_hh.t()) + b_ih + b_hh
        h, c = gates_to_state(gates, c)
        outputs.append(h)
    return torch.stack(outputs)


def hoisted_step(x: Tensor, h: Tensor, c: Tensor, w_hh: Tensor) -> tuple[Tensor, Tensor]:
    """What is left of a step when inputs and biases came before the loop."""
    return gates_to_state(x + torch.mm(h, w_hh.t()), c)


def hoisted_loop(step: Callable[..., tuple[Tensor, Tensor]]) -> Loop:
    """The biases added before the loop, too: one sum over steps and batch is their gradient."""

    def loop(
        input: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
    ) -> Tensor:
        outputs: list[Tensor] = []
        for x in torch.nn.functional.linear(input, w_ih, b_ih + b_hh).unbind(0):
            h, c = step(x, h, c, w_hh)
            outputs.append(h)
        return torch.stack(outputs)

    return loop


def stages() -> dict[str, Loop]:
    """The LSTMs written in Python."""
    return {
        "eager": plain_loop,
        "TorchScript": script(plain_loop),
        "TorchScript, premultiplied": script(premultiplied_loop),
        "TorchScript, biases hoisted": script(hoisted_loop(hoisted_step)),
        "eager, biases hoisted": hoisted_loop(hoisted_step),
        **{name: hoisted_loop(step) for name, step in compiled(hoisted_step).items()},
    }


# The graph --------------------------------------------------------------------------------------


def outline(graph: torch.Graph) -> str:
    """A graph's operations in order; [brackets] hold what became one kernel."""
    return " ".join(_outline(graph))


def _outline(block: Any) -> Iterator[str]:
    for node in block.nodes():
        kind = node.kind()
        if kind == "prim::TensorExprGroup":
            yield f"[{outline(node.g('Subgraph'))}]"
        elif kind == "prim::DifferentiableGraph":
            yield from _outline(node.g("Subgraph"))
        elif kind == "prim::If":
            yield from _outline(next(iter(node.blocks())))  # the first is the fast path
        elif kind.startswith("aten::") and not kind.startswith(QUESTIONS):
            yield kind.removeprefix("aten::")


def graphs() -> dict[str, str]:
    """The scripted cell's graph: as written, and as it runs forward and backward.

    Torch's wheels cannot fuse on a CPU, for want of LLVM. They can with the fuser's interpreter,
    which is of no use but for this: the graph is the one that a GPU gets.
    """
    could = torch._C._jit_can_fuse_on_cpu()
    torch._C._jit_override_can_fuse_on_cpu(True)
    torch._C._jit_set_te_must_use_llvm_cpu(False)
    try:
        scripted = script(cell)
        shapes = ((4, 5), (4, 6), (4, 6), (24, 5), (24, 6), (24,), (24,))
        arguments = [torch.randn(shape, requires_grad=True) for shape in shapes]
        for _ in range(3):  # it profiles twice before it optimises
            h, c = scripted(*arguments)
            (h.sum() + c.sum()).backward()
        backward = torch.jit.last_executed_optimized_graph()
        forward = scripted.graph_for(*arguments)
        return {
            "before": outline(scripted.inlined_graph),
            "after, forward": outline(forward),
            "after, backward": outline(backward),
        }
    finally:
        torch._C._jit_override_can_fuse_on_cpu(could)
        torch._C._jit_set_te_must_use_llvm_cpu(True)


# The table --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """The sizes, one set of weights for all LSTMs, and an LLTM of the same size."""

    input: Tensor
    lstm: nn.LSTM
    rnn: lltm.LLTMSequence

    @staticmethod
    def make(steps: int, batch: int, features: int, state: int, device: str) -> Problem:
        """The same numbers on every machine."""
        torch.manual_seed(0)
        input = torch.randn(steps, batch, features)
        lstm, rnn = nn.LSTM(features, state), lltm.LLTMSequence(features, state)
        return Problem(input.to(device), lstm.to(device), rnn.to(device))

    @property
    def parameters(self) -> list[Tensor]:
        """All that backward computes gradients of."""
        return [*self.lstm.parameters(), *self.rnn.parameters()]

    def run(self, loop: Loop, input: Tensor) -> tuple[Tensor]:
        """The outputs of an LSTM written in Python."""
        zeros = input.new_zeros(input.shape[1], self.lstm.hidden_size)
        return (loop(input, zeros, zeros, *self.lstm.all_weights[0]),)

    def _sum(self, rnn: Callable[[Tensor], tuple[Any, ...]]) -> Tensor:
        output, *_ = rnn(self.input)
        return output.sum()

    def functions(self, loops: dict[str, Loop]) -> dict[str, Callable[[], Tensor]]:
        """Every row of the table, as a function that computes a scalar."""
        return {
            **{name: partial(self._sum, partial(self.run, loop)) for name, loop in loops.items()},
            BASELINE: partial(self._sum, self.lstm),
            "lltm (another cell: 3 gates)": partial(self._sum, self.rnn),
        }


def check(problem: Problem, loops: dict[str, Loop]) -> None:
    """Every LSTM against nn.LSTM, and lltm against its definition: outputs and gradients."""
    weights = list(problem.lstm.parameters())
    expected = problem.lstm(problem.input)[0]
    gradients = torch.autograd.grad(expected.mean(), weights)
    for name, loop in loops.items():
        for _ in range(3):  # TorchScript's first runs are not yet the fused ones
            (found,) = problem.run(loop, problem.input)
            found_gradients = torch.autograd.grad(found.mean(), weights)
        message = f"{name} is not nn.LSTM: {{}}".format
        torch.testing.assert_close(found, expected, **CLOSE, msg=message)
        torch.testing.assert_close(found_gradients, gradients, **CLOSE, msg=message)
    zeros = problem.input.new_zeros(problem.input.shape[1], problem.rnn.state_size)
    arguments = (problem.rnn.weight_l0, problem.rnn.bias_l0, zeros, zeros)
    definition, *_ = lltm.reference.sequence(problem.input, *arguments)
    torch.testing.assert_close(problem.rnn(problem.input)[0], definition, **CLOSE)


class CountSums(TorchDispatchMode):
    """Counts the reductions that torch is asked for."""

    count = 0

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count, and go on."""
        self.count += op.overloadpacket is torch.ops.aten.sum
        return op(*args, **(kwargs or {}))


def sums_in_backward(function: Callable[[], Tensor]) -> int:
    """How many reductions backward asks for: the gradients of broadcast biases."""
    loss = function()
    with CountSums() as counter:
        loss.backward()
    return counter.count


def measure(problem: Problem, rounds: int, device: str) -> list[dict[str, Any]]:
    """One row for each way to compute."""
    loops = stages()
    check(problem, loops)
    functions = problem.functions(loops)
    rows = table(interleaved(functions, problem.parameters, rounds, device), BASELINE)
    for row in rows:
        row["reported"] = REPORTED.get(row["name"])
        row["sums_in_backward"] = sums_in_backward(functions[row["name"]])
    return rows


def main() -> None:
    """Graphs, table, and the boxes."""
    parser = argparse.ArgumentParser(description="The fast-RNN story, retold and timed.")
    parser.add_argument("--device", type=device_here, choices=DEVICES, default="cpu")
    parser.add_argument("--sizes", type=positive, nargs=4, metavar=("T", "B", "F", "S"))
    parser.add_argument("--boxes", type=positive, default=fused_iou.BOXES)
    parser.add_argument("--rounds", type=positive, default=50, help="timed calls of each row")
    parser.add_argument("--out", type=folder, default=Path("fast_rnns_output"))
    options = parser.parse_args()
    sizes = options.sizes or (
        (100, 64, 512, 512) if options.device == "cuda" else (64, 16, 32, 128)
    )

    outlines = graphs()
    for name, text in outlines.items():
        print(f"the cell in TorchScript, {name}:\n  {text}")
    print("[...] is one kernel. What stays outside of it backward, besides the matrix products, is")
    print("_grad_sum_to_size: the gradient of a bias that was broadcast over the batch.\n")

    rows = measure(Problem.make(*sizes, options.device), options.rounds, options.device)
    title = f"times of {BASELINE}; T, B, F, S = {sizes}, {options.device}"
    show(title, rows, "sums_in_backward")
    for name, (backward, both) in REPORTED.items():
        print(f"reported then, on a GPU against cuDNN: {name} {backward} backward, {both} in all\n")

    options.out.mkdir(parents=True, exist_ok=True)
    twin = {"sizes": sizes, "graphs": outlines, "lstm": rows}
    (options.out / "table.json").write_text(json.dumps(twin, indent=1) + "\n", encoding="utf-8")
    bars({row["name"]: row["ratio"] for row in rows}, title, options.out / "table.svg")
    print(
        f"the table is in {options.out / 'table.json'}, its picture in {options.out / 'table.svg'}"
    )

    fused_iou.run(options.boxes, options.rounds, options.device, options.out)


if __name__ == "__main__":
    main()
