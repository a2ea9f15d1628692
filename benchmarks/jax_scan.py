"""A cell in JAX: `lax.scan` under `jit`, as a user of JAX writes it.

XLA reads its number of threads when it starts, so that a process races one thread count.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cases import Arguments
from torch import Tensor
from torch.utils import dlpack

from benchmarks.jax_cells import SPLIT, STEPS, States
from benchmarks.not_here import NotHere
from benchmarks.workloads import (
    BACKWARD,
    FORWARD,
    INFERENCE,
    TRAINING_STEP,
    Call,
    Foreign,
    Row,
    cotangents,
)

Function = Callable[..., Any]


@functools.cache
def start(threads: int) -> ModuleType:
    """Import JAX for that many threads, which it takes once in a process."""
    os.environ["NPROC"] = str(threads)
    eigen = "true" if threads > 1 else "false"
    flags = f"--xla_cpu_multi_thread_eigen={eigen}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()
    try:
        import jax  # noqa: PLC0415 - its threads are set first
    except ImportError as error:
        raise NotHere("JAX is not installed") from error
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return jax


def started(threads: int) -> ModuleType:
    if not start.cache_info().currsize:
        return start(threads)
    hits = start.cache_info().hits
    jax = start(threads)
    if start.cache_info().hits == hits:
        raise NotHere("JAX has started with another number of threads in this process")
    return jax


def scan(jax: ModuleType, name: str, unroll: int) -> Function:
    """The sequence of a cell, of arrays in the op's order, to the output and the last states."""
    cell, split = functools.partial(STEPS[name], jax), name in SPLIT

    def sequence(input: Any, weights: Any, bias: Any, states: States, scalars: States) -> Any:
        state = states[0].shape[1]
        gates = weights.shape[0] // state
        # In 16 bits the gradient of the bias would be summed in 16 bits, and fail the check.
        wide = jax.numpy.promote_types(input.dtype, jax.numpy.float32)
        of_input, of_recurrent = jax.numpy.split(bias, 2) if split else (bias, 0)
        projected = (input @ weights[:, state:].T).astype(wide) + of_input.astype(wide)
        recurrent = weights[:, :state].T

        def step(states: States, z_input: Any) -> Any:
            share = states[0] @ recurrent + of_recurrent
            shares = (z_input, share) if split else (z_input + share,)
            z = (tuple(jax.numpy.split(each, gates, axis=-1)) for each in shares)
            states = cell(*z, states, *scalars)
            return states, states[0]

        projected = projected.astype(input.dtype)
        states, output = jax.lax.scan(step, states, projected, unroll=unroll)
        return output, *states

    return sequence


class Compiled:
    """A jitted function, and how long its first result took beyond a later one."""

    def __init__(self, jax: ModuleType, function: Function) -> None:
        self._jax, self._jitted = jax, jax.jit(function)
        self.compile_seconds: float | None = None

    def __call__(self, *arrays: Any) -> Any:
        if self.compile_seconds is None:
            first, later = (self._timed(*arrays) for _ in range(2))
            self.compile_seconds = max(0.0, first - later)
        return self._jax.block_until_ready(self._jitted(*arrays))

    def _timed(self, *arrays: Any) -> float:
        start = time.perf_counter()
        self._jax.block_until_ready(self._jitted(*arrays))
        return time.perf_counter() - start


class Scan:
    """What is compiled for one number of steps to unroll."""

    def __init__(
        self, jax: ModuleType, unroll: int, scalars: tuple[float, ...], name: str = "lltm"
    ) -> None:
        sequence = scan(jax, name, unroll)

        def pulled_back(input: Any, weights: Any, bias: Any, *states: Any) -> Any:
            # The initial state is a constant, as in the other competitors' rows.
            return jax.vjp(
                lambda *asking: sequence(*asking, states, scalars),
                input,
                weights,
                bias,
            )

        def training_step(grads: Any, *arrays: Any) -> Any:
            outputs, pull_back = pulled_back(*arrays)
            return outputs, pull_back(grads)

        self.inference = Compiled(
            jax,
            lambda input, weights, bias, *states: sequence(input, weights, bias, states, scalars),
        )
        self.forward = Compiled(jax, pulled_back)
        self.backward = Compiled(jax, lambda pull_back, grads: pull_back(grads))
        self.training_step = Compiled(jax, training_step)


# One for a problem: XLA compiles for a shape, and a row of other work needs it again.
_scans = functools.lru_cache(maxsize=4)(Scan)


def problem(row: Row, arguments: Arguments, unroll: int) -> Foreign:
    """The row by `lax.scan`, unrolled by that many steps."""
    jax = started(row.threads)
    scan = _scans(jax, unroll, (arguments.alpha,))
    arrays = [jax.dlpack.from_dlpack(tensor.detach()) for tensor in arguments.tensors()]
    if row.work == INFERENCE:
        return _foreign(lambda: scan.inference(*arrays), scan.inference)
    outputs, pull_back = scan.forward(*arrays)
    grads = tuple(
        jax.dlpack.from_dlpack(grad) for grad in cotangents([as_tensor(each) for each in outputs])
    )
    if row.work == TRAINING_STEP:
        both = functools.partial(scan.training_step, grads, *arrays)
        return _foreign(both, scan.training_step, training_call=both)
    forward = functools.partial(scan.forward, *arrays)
    backward = functools.partial(scan.backward, pull_back, grads)
    backward()
    timed = {FORWARD.name: scan.forward, BACKWARD.name: scan.backward}[row.work.name]
    return Foreign(
        forward,
        lambda: [*map(as_tensor, forward()[0]), *map(as_tensor, backward())],
        backward_call=backward,
        compile_seconds=timed.compile_seconds,
    )


def _foreign(call: Call, compiled: Compiled, **calls: Call) -> Foreign:
    call()
    return Foreign(
        call,
        lambda: [as_tensor(each) for each in _flat(call())],
        compile_seconds=compiled.compile_seconds,
        **calls,
    )


def _flat(found: Any) -> list[Any]:
    return [each for part in found for each in (_flat(part) if isinstance(part, tuple) else [part])]


def as_tensor(array: Any) -> Tensor:
    return dlpack.from_dlpack(array).clone()
