"""What torch does to an op holds for every cell's kernels: transforms, batches, threads, shapes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cells_cases import CELLS, EACH_CELL
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from lltm import cells
from lltm.cells import _kernels
from lltm.cells._contract import Arguments
from lltm.cells._kernel_checks import EPISODES, SLACK
from lltm.cells._problem import (
    Function,
    Problem,
    of_kernels,
    of_reference,
    present,
    results,
    with_tensors,
)

pytestmark = [
    pytest.mark.subprocess,
    pytest.mark.usefixtures("compiled_cells"),
    EACH_CELL,
]


WITH_EPISODES = pytest.mark.parametrize(
    "episodes", EPISODES.values(), ids=["", "zeros", "reset_state"]
)


def given(name: str, episodes: tuple[bool, bool] = (False, False), **sizes: int) -> Arguments:
    """Small, in float64."""
    small = {"steps": 3, "batch": 2, "features": 3, "state": 4}
    return Problem(CELLS[name], **{**small, **sizes}).arguments(*episodes)


def loss(outputs: tuple[Tensor, ...]) -> Tensor:
    return torch.stack([each.square().sum() for each in outputs]).sum()


def of_weights(function: Function, arguments: Arguments) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss, by input and weights."""
    rest = arguments.tensors()[2:]

    def scalar(input: Tensor, weights: Tensor) -> Tensor:
        tensors = (input, weights, *(each for each in rest if each is not None))
        return loss(function(with_tensors(arguments, tensors)))

    return scalar


def both(name: str, arguments: Arguments) -> list[Callable[[Tensor, Tensor], Tensor]]:
    cell = CELLS[name]
    return [of_weights(of(cell), arguments) for of in (of_kernels, of_reference)]


@WITH_EPISODES
def test_third_order(name: str, episodes: tuple[bool, bool]) -> None:
    arguments = given(name, episodes)

    def third(scalar: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        weights = arguments.weights.clone().requires_grad_()
        value = scalar(arguments.input, weights)
        for _ in range(3):
            (gradient,) = torch.autograd.grad(value, weights, create_graph=True)
            value = gradient.square().sum()
        return gradient

    torch.testing.assert_close(*map(third, both(name, arguments)))


@WITH_EPISODES
def test_second_order_under_hooks_on_saved_tensors(name: str, episodes: tuple[bool, bool]) -> None:
    """A penalty on a gradient, within a checkpoint or with what is saved on the CPU."""
    arguments = given(name, episodes)

    def penalty(scalar: Callable[[Tensor, Tensor], Tensor], weights: Tensor) -> Tensor:
        value = scalar(arguments.input, weights)
        (gradient,) = torch.autograd.grad(value, weights, create_graph=True)
        return gradient.square().sum()

    weights = arguments.weights.clone().requires_grad_()
    kernels, reference = both(name, arguments)
    (expected,) = torch.autograd.grad(penalty(reference, weights), weights)
    with torch.autograd.graph.save_on_cpu():
        (found,) = torch.autograd.grad(penalty(kernels, weights), weights)
    torch.testing.assert_close(found, expected)


def hessian_times(scalar: Callable[..., Tensor], x: Tensor, w: Tensor) -> Tensor:
    """Forward over reverse."""
    gradient = torch.func.grad(scalar, argnums=1)
    return torch.func.jvp(lambda weights: gradient(x, weights), (w,), (w,))[1]


TRANSFORMS: dict[str, Callable[..., Tensor]] = {
    "grad": lambda f, x, w: torch.func.grad(f, argnums=1)(x, w),
    "jacrev": lambda f, x, w: torch.func.jacrev(f)(x, w),
    "jacfwd": lambda f, x, w: torch.func.jacfwd(f)(x, w),
    "hessian": lambda f, x, w: torch.func.hessian(f)(x, w),
    "forward over reverse": hessian_times,
}


@WITH_EPISODES
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(name: str, transform: str, episodes: tuple[bool, bool]) -> None:
    arguments = given(name, episodes)
    found, expected = (
        TRANSFORMS[transform](scalar, arguments.input, arguments.weights)
        for scalar in both(name, arguments)
    )
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_weights_that_are_apart(name: str, transform: str) -> None:
    arguments = given(name)
    weights, input_weights = arguments.weights.tensor_split([arguments.state_columns()], dim=1)

    def apart(function: Function) -> Callable[[Tensor, Tensor], Tensor]:
        def scalar(weights: Tensor, input_weights: Tensor) -> Tensor:
            parts = {"weights": weights, "input_weights": input_weights}
            return loss(function(arguments._replace(**parts)))

        return scalar

    cell = CELLS[name]
    found, expected = (
        TRANSFORMS[transform](apart(of(cell)), weights, input_weights)
        for of in (of_kernels, of_reference)
    )
    torch.testing.assert_close(found, expected)


def test_weights_that_are_apart_are_mapped(name: str) -> None:
    arguments = given(name)
    weights, input_weights = arguments.weights.tensor_split([arguments.state_columns()], dim=1)

    def output(input_weights: Tensor) -> Tensor:
        apart = arguments._replace(weights=weights, input_weights=input_weights)
        return of_kernels(CELLS[name])(apart)[0]

    mapped = torch.stack([input_weights, -input_weights])
    found = torch.vmap(output)(mapped)
    torch.testing.assert_close(found, torch.stack([output(each) for each in mapped]))


def test_the_raw_forward_has_no_forward_mode(name: str) -> None:
    """A tangent of zero would be silently wrong."""
    arguments = given(name)
    op = getattr(torch.ops, str(_kernels.namespace(CELLS[name]))).sequence_forward.default

    def forward(weights: Tensor) -> Tensor:
        args = arguments._replace(weights=weights).of_backward()
        output: Tensor = op(*args)[0]
        return output

    with pytest.raises(
        NotImplementedError, match=r"sequence_forward .*, and weights has a tangent"
    ):
        torch.func.jvp(forward, (arguments.weights,), (arguments.weights,))


def test_a_meta_tensor_among_others_is_refused(name: str) -> None:
    """Torch would compute nothing, and return memory as it finds it."""
    arguments = Problem(CELLS[name], steps=3, batch=2, features=3, state=4).arguments(reset=True)
    ops = getattr(torch.ops, str(_kernels.namespace(CELLS[name])))
    given = arguments.of_backward()
    output, last, *saved = ops.sequence_forward(*given)
    grads = torch.ones_like(output), torch.ones_like(last)
    all_needed = [True] * 5
    for op, args in (
        (ops.sequence, given),
        (ops.sequence_forward, given),
        (ops.sequence_backward, (*grads, *given, output, *saved, all_needed)),
    ):
        for at, value in enumerate(args):
            if isinstance(value, Tensor):
                mixed = (*args[:at], value.to("meta"), *args[at + 1 :])
                with pytest.raises(RuntimeError, match=r"must be on the device of input, .*meta"):
                    op(*mixed)


def test_nested_vmap(name: str) -> None:
    arguments = given(name)
    inputs = torch.stack([arguments.input * scale for scale in torch.linspace(0, 1, 6)])
    kernels, reference = both(name, arguments)
    mapped = torch.vmap(torch.vmap(kernels, (0, None)), (0, None))
    found = mapped(inputs.unflatten(0, (2, 3)), arguments.weights)
    expected = torch.stack([reference(each, arguments.weights) for each in inputs])
    torch.testing.assert_close(found.flatten(), expected)


def test_per_sample_gradients(name: str) -> None:
    """One gradient of the weights for each sample, as differential privacy wants."""
    arguments = given(name)
    inputs = torch.stack([arguments.input, -arguments.input])
    kernels, reference = both(name, arguments)
    found = torch.vmap(torch.func.grad(kernels, 1), (0, None))(inputs, arguments.weights)
    gradient = torch.func.grad(reference, 1)
    expected = torch.stack([gradient(each, arguments.weights) for each in inputs])
    torch.testing.assert_close(found, expected)


def test_batched_cotangents(name: str) -> None:
    arguments = given(name)
    weights = arguments.weights.clone().requires_grad_()
    tensors = [arguments.input, weights, *(t for t in arguments.tensors()[2:] if t is not None)]

    def gradients(of: Callable[..., Function], seeds: Tensor, batched: bool) -> Tensor:
        output, _ = of(CELLS[name])(with_tensors(arguments, tensors))
        (found,) = torch.autograd.grad(output, weights, seeds, is_grads_batched=batched)
        return found

    seeds = torch.stack([torch.ones_like(arguments.input[..., :1]).expand(-1, -1, 4)] * 3)
    seeds = seeds * torch.tensor([1.0, -2.0, 0.5])[:, None, None, None]
    found = gradients(of_kernels, seeds, batched=True)
    expected = torch.stack([gradients(of_reference, seed, batched=False) for seed in seeds])
    torch.testing.assert_close(found, expected)


def test_threads_of_python(name: str) -> None:
    """Forward and backward from several threads at once give the bits of one."""
    arguments = Problem(CELLS[name], dtype=torch.float32).arguments()
    expected = results(of_kernels(CELLS[name]), arguments)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: results(of_kernels(CELLS[name]), arguments), range(16)):
            assert all(torch.equal(a, e) for a, e in zip(found, expected, strict=True))


def test_compiled_autograd(name: str) -> None:
    """Backward alone can be compiled, of a result that is an argument again, too."""
    torch.compiler.reset()
    arguments = given(name)
    weights = arguments.weights.clone().requires_grad_()
    weighted = arguments._replace(weights=weights)

    def value(function: Function) -> Tensor:
        _, last = function(weighted)
        return loss(function(weighted._replace(states=last)))

    (expected,) = torch.autograd.grad(value(of_reference(CELLS[name])), weights)
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(value(of_kernels(CELLS[name])).backward, backend="aot_eager")()
    torch.testing.assert_close(weights.grad, expected)


def test_dynamic_shapes_do_not_recompile(name: str) -> None:
    torch.compiler.reset()
    frames = CompileCounterWithBackend("aot_eager")
    kernels = of_kernels(CELLS[name])
    # Sizes that no call below has, and no N among T: the compiler takes equal sizes for one.
    arguments = given(name, steps=23, batch=29, features=31, state=74)

    def sequence(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return kernels(with_tensors(arguments, tensors))

    compiled = torch.compile(sequence, fullgraph=True, dynamic=True, backend=frames)
    counted = []
    for steps, batch, features, state in ((6, 3, 5, 8), (7, 10, 9, 12), (5, 16, 11, 20)):
        sized = given(name, steps=steps, batch=batch, features=features, state=state)
        tensors = tuple(each for each in sized.tensors() if each is not None)
        torch.testing.assert_close(compiled(tensors), sequence(tensors))
        counted.append(frames.frame_count)
    assert 0 < counted[0] == counted[1] == counted[2]


@pytest.mark.compile
@WITH_EPISODES
def test_opcheck_of_the_kernels(name: str, episodes: tuple[bool, bool]) -> None:
    arguments = given(name, episodes)
    ops = getattr(torch.ops, str(_kernels.namespace(CELLS[name])))
    of_both = arguments.of_backward()
    torch.library.opcheck(ops.sequence_forward.default, of_both)
    output, last, *saved = ops.sequence_forward(*of_both)
    needs = [each is not None for each in arguments.tensors()]
    grads = output.cos(), last.cos()
    torch.library.opcheck(ops.sequence_backward.default, (*grads, *of_both, output, *saved, needs))


@pytest.mark.compile
def test_inductor(name: str) -> None:
    """The default compiler, with work around the op for it to fuse."""
    torch.compiler.reset()
    arguments = given(name, (True, True))

    def around(function: Function) -> Callable[..., tuple[Tensor, Tensor]]:
        def fused(*tensors: Tensor) -> tuple[Tensor, Tensor]:
            output, last = function(with_tensors(arguments, tensors))
            return 2.0 * output.tanh(), last.sigmoid()

        return fused

    compiled = torch.compile(around(of_kernels(CELLS[name])), fullgraph=True)
    found = results(lambda each: compiled(*present(each)), arguments)
    reference = around(of_reference(CELLS[name]))
    torch.testing.assert_close(found, results(lambda each: reference(*present(each)), arguments))


@pytest.mark.compile
def test_export_for_any_number_of_steps_and_rows(name: str) -> None:
    module = cells.Sequence(CELLS[name], 3, 8, num_layers=2)
    sizes = {0: torch.export.Dim("time", min=2, max=65), 1: torch.export.Dim("batch", max=64)}

    def episodes(steps: int, batch: int) -> tuple[Tensor, Tensor]:
        return torch.randn(steps, batch, 3), torch.rand(steps, batch) < 0.3

    x, reset = episodes(5, 4)
    shapes = {"input": sizes, "reset": sizes}
    program = torch.export.export(module, (x,), {"reset": reset}, dynamic_shapes=shapes).module()
    for steps, batch in ((5, 4), (10, 9)):
        x, reset = episodes(steps, batch)
        torch.testing.assert_close(program(x, reset=reset), module(x, reset=reset))


def test_deterministic_algorithms_are_all_there_is(name: str) -> None:
    """What is allocated is filled with nan then: whatever a kernel left unwritten would show."""
    for dtype in SLACK:
        arguments = Problem(CELLS[name], dtype=dtype).arguments()
        expected = results(of_kernels(CELLS[name]), arguments)
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.utils.deterministic.fill_uninitialized_memory
            found = results(of_kernels(CELLS[name]), arguments)
        finally:
            torch.use_deterministic_algorithms(False)
        assert all(map(torch.equal, found, expected))
