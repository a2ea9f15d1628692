"""torch.compile and torch.export take the op whole: one graph, static and dynamic shapes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cases
import pytest
import torch
import torch._dynamo.testing
from cases import Case
from torch._dynamo.utils import counters

import lltm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

pytestmark = pytest.mark.compile
OPS = ("cell", "sequence")
COMPILED = {
    "cell": Case("compiled", 4, 2, 5),
    "sequence": Case("compiled", 4, 2, 5, steps=3),
}
"""No two sizes alike: of those that are, torch.compile takes one to be the other."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _assert_compiled_equals(case: Case, compiled: Callable[..., tuple[Tensor, ...]]) -> None:
    arguments = case.arguments().leaves()
    outputs = compiled(*arguments)
    for a, e in zip(outputs, case.reference(*arguments), strict=True):
        cases.assert_close(a, e, "compiled")
    expected = cases.reference_gradients(case, arguments)
    for a, e in zip(cases.gradients(outputs, arguments), expected, strict=True):
        cases.assert_close(a, e, "gradient of compiled")


def _assert_compiles(case: Case, backend: str, dynamic: bool) -> None:
    """fullgraph: a break in the graph is an error. aot_eager traces all that inductor would."""

    def function(*args: Tensor) -> tuple[Tensor, ...]:
        return case.function(*args, backend=backend)

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    _assert_compiled_equals(case, compiled)
    with torch.no_grad():
        arguments = case.arguments()
        for a, e in zip(compiled(*arguments), case.reference(*arguments), strict=True):
            cases.assert_close(a, e, "compiled without gradients")


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("bias", cases.BIASES)
@pytest.mark.parametrize("op", OPS)
def test_compile(op: str, bias: str, dynamic: bool, compiled_backend: str) -> None:
    _assert_compiles(replace(COMPILED[op], bias=bias), compiled_backend, dynamic)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", OPS)
def test_compile_of_the_reference(op: str, dynamic: bool) -> None:
    """Traced through, each of its ops; the form of the bias is one argument of one of them."""
    _assert_compiles(COMPILED[op], "reference", dynamic)


@pytest.mark.parametrize("op", OPS)
def test_dynamic_shapes_do_not_recompile(op: str, compiled_backend: str) -> None:
    case = COMPILED[op]
    frames = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    def function(*args: Tensor) -> tuple[Tensor, ...]:
        return case.function(*args, backend=compiled_backend)

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=frames)
    _assert_compiled_equals(case, compiled)
    compilations = frames.frame_count
    for batch, features, state in ((7, 6, 9), (16, 11, 8)):
        sized = replace(case, batch=batch, features=features, state=state)
        _assert_compiled_equals(sized, compiled)
    assert frames.frame_count == compilations


@pytest.mark.parametrize("op", OPS)
def test_the_graph_holds_the_op_whole(op: str) -> None:
    """Nothing is traced through: the compiler sees one call of the op."""
    case = COMPILED[op]
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(case.function, fullgraph=True, backend=keep)
    compiled(*case.arguments())
    targets = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert sum(target.startswith("lltm.") for target in targets) == 1, targets


@pytest.mark.parametrize("op", OPS)
def test_inductor(op: str) -> None:
    """The default compiler, with work around the op for it to fuse."""
    case = COMPILED[op]

    def function(*args: Tensor) -> tuple[Tensor, ...]:
        outputs = case.function(*args, backend="fused")
        return tuple(2.0 * output.tanh() for output in outputs)

    arguments = case.arguments().leaves()
    outputs = torch.compile(function, fullgraph=True)(*arguments)
    found = cases.gradients(outputs, arguments)
    expected = tuple(2.0 * output.tanh() for output in case.reference(*arguments))
    for a, e in zip(outputs, expected, strict=True):
        cases.assert_close(a, e, "inductor")
    wanted = torch.autograd.grad(cases.loss(expected), arguments.tensors())
    for a, e in zip(found, wanted, strict=True):
        cases.assert_close(a, e, "gradient of inductor")


def test_inductor_reads_no_graph_of_another_process() -> None:
    """Its cache would give loops with vectors to a process that is held to none."""
    counters["inductor"].clear()
    for _ in range(2):
        torch.compiler.reset()
        torch.compile(torch.tanh, fullgraph=True)(torch.ones(3))
    assert counters["inductor"]["fxgraph_cache_hit"] == 0


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_transforms_inside_compile(transform: str) -> None:
    case = COMPILED["cell"]
    arguments = case.arguments()

    def scalar(weights: Tensor) -> Tensor:
        return cases.loss(case.function(arguments.input, weights, *arguments[2:], backend="fused"))

    functions = {
        "grad": torch.func.grad(scalar),
        "vmap": lambda w: torch.vmap(scalar)(torch.stack([w, 2 * w])),
        "jvp": lambda w: torch.func.jvp(scalar, (w,), (torch.ones_like(w),))[1],
    }
    compiled = torch.compile(functions[transform], backend="aot_eager")
    cases.assert_close(
        compiled(arguments.weights), functions[transform](arguments.weights), transform
    )


@pytest.mark.parametrize("op", OPS)
def test_compiled_autograd(op: str, compiled_backend: str) -> None:
    """Backward alone can be compiled."""
    case = COMPILED[op]
    found, wanted = case.arguments().leaves(), case.arguments().leaves()
    loss = cases.loss(case.function(*found, backend=compiled_backend))
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(loss.backward, backend="aot_eager")()
    cases.loss(case.function(*wanted, backend=compiled_backend)).backward()
    for a, e in zip(found.tensors(), wanted.tensors(), strict=True):
        cases.assert_close(a.grad, e.grad, "gradient of compiled autograd")


def test_compiled_autograd_of_two_layers() -> None:
    """The upper one's input is no leaf of the graph."""
    module, x = lltm.LLTMSequence(3, 5, 2), torch.randn(6, 4, 3)
    expected = torch.autograd.grad(module(x)[0].sum(), list(module.parameters()))
    loss = module(x)[0].sum()
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(loss.backward, backend="aot_eager")()
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        cases.assert_close(parameter.grad, gradient, "gradient of compiled autograd")


@pytest.mark.parametrize("name", ["LLTM", "LLTMSequence"])
def test_compile_of_a_module(name: str) -> None:
    module = lltm.LLTM(3, 5) if name == "LLTM" else lltm.LLTMSequence(3, 5, 2, bidirectional=True)
    x = torch.randn(4, 3) if name == "LLTM" else torch.randn(6, 4, 3)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    actual, expected = compiled(x), module(x)
    cases.assert_close(actual[0], expected[0], "compiled module")
    actual[0].sum().backward()
    compiled_gradients = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    expected[0].sum().backward()
    for a, parameter in zip(compiled_gradients, module.parameters(), strict=True):
        cases.assert_close(a, parameter.grad, "gradient of compiled module")


# Export -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["LLTM", "LLTMSequence"])
def test_export(name: str) -> None:
    """With a dynamic batch (and time); the exported program holds the op and runs."""
    batch = torch.export.Dim("batch", min=2, max=64)
    if name == "LLTM":
        module: torch.nn.Module = lltm.LLTM(3, 5)
        make, dims = (lambda b: torch.randn(b, 3)), {0: batch}
    else:
        module = lltm.LLTMSequence(3, 5, num_layers=2)
        time = torch.export.Dim("time", min=2, max=65)
        make, dims = (lambda b: torch.randn(b + 1, b, 3)), {0: time, 1: batch}
    program = torch.export.export(module, (make(4),), dynamic_shapes=({**dims},))
    targets = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert any(target.startswith("lltm.") for target in targets), targets
    for b in (4, 9):
        x = make(b)
        cases.assert_close(program.module()(x)[0], module(x)[0], "exported")


def test_export_to_a_file(tmp_path: Path) -> None:
    module = lltm.LLTM(3, 5)
    x = torch.randn(4, 3)
    program = torch.export.export(module, (x,))
    path = f"{tmp_path}/cell.pt2"
    torch.export.save(program, path)
    cases.assert_close(torch.export.load(path).module()(x)[0], module(x)[0], "loaded")


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of its own code
def test_compiled_ahead_of_time(tmp_path: Path) -> None:
    """By AOTInductor, for any number of rows."""
    module = lltm.LLTMSequence(3, 5, num_layers=2)
    batch = torch.export.Dim("batch", min=2, max=64)
    with torch.no_grad():
        program = torch.export.export(module, (torch.randn(6, 4, 3),), dynamic_shapes=({1: batch},))
        path = str(tmp_path / "model.pt2")
        # In C++: from assembly torch makes a library that asks for an executable stack.
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=path,
            inductor_configs={"aot_inductor.use_consts_asm_build": False},
        )
        loaded = torch._inductor.aoti_load_package(path)
        x = torch.randn(6, 9, 3)
        output, states = loaded(x)
        expected, expected_states = module(x)
    cases.assert_close(output, expected, "output")
    for a, e in zip(states, expected_states, strict=True):
        cases.assert_close(a, e, "state")
