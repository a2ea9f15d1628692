"""Who computes a sequence."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch
from lltm.cells import _contract, _kernels, _reference
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition
from lltm.cells._step import States, StepArguments, StepOps, step

KERNELS = ("cpu", "cuda")
"""The devices that there are kernels for."""


def run(definition: Definition, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """The hidden states ``[T, B, S]`` and the last states ``[N, B, S]``."""
    compiling = torch.compiler.is_compiling()
    device = _dispatch.device_type(arguments.input)
    if (compiling or torch._C._is_any_autocast_enabled()) and _dispatch.casts(device):
        with torch.autocast(device, enabled=False):
            return run(definition, autocast(arguments, device))
    look_up = _kernels.traced_namespace if compiling else _kernels.namespace
    namespace = look_up(definition, device) if device in KERNELS else None
    if namespace is None:
        _contract.check(definition, arguments)
        return _reference.sequence(definition, arguments)
    if compiling:  # Dynamo traces past a cache, with a warning
        _contract.check(definition, arguments)
        results: tuple[Tensor, Tensor] = _overload(namespace)(*arguments)
        return results
    return _with_kernels(namespace, definition, arguments)


def _with_kernels(
    namespace: str, definition: Definition, arguments: Arguments
) -> tuple[Tensor, Tensor]:
    """By the op, which checks what it is given as it goes; what it refuses is explained here.

    The checks in Python take as long as a small problem.
    """
    if not _contract.has_its_heads(definition, arguments):
        _contract.check(definition, arguments)
    try:
        results: tuple[Tensor, Tensor] = _direct(namespace)(*arguments)
    except RuntimeError:
        _explain(definition, arguments)
        raise
    return results


def run_step(definition: Definition, arguments: StepArguments) -> States | None:
    """The new states, the short way; None where it is not for these arguments."""
    input, weights = arguments.input, arguments.weights
    device = _dispatch.device_type(input)
    plain = device in KERNELS and _dispatch.is_plain(arguments.tensors())
    # torch.jit traces twice, once without gradients, and wants the same operations of both.
    if not plain or torch.is_autocast_enabled(device) or torch._C._is_tracing():
        return None
    namespace = _kernels.namespace(definition, device)
    head = weights.shape[1] - input.shape[1]
    if namespace is None or weights.shape[0] != definition.gates * definition.heads * head:
        return None
    try:
        return step(_step_ops(namespace), arguments)
    except (RuntimeError, TypeError):
        return None  # the long way says what does not fit


@functools.cache
def _step_ops(namespace: str) -> StepOps:
    return StepOps.of(namespace)


def _explain(definition: Definition, arguments: Arguments) -> None:
    try:
        _contract.check(definition, arguments)
    except RuntimeError as error:
        raise error from None  # the op's own words add nothing


def _overload(namespace: str) -> Callable[..., Any]:
    op: Callable[..., Any] = getattr(torch.ops, namespace).sequence.default
    return op


@functools.cache
def _direct(namespace: str) -> Callable[..., Any]:
    return _dispatch.direct(_overload(namespace))


def autocast(arguments: Arguments, device: str) -> Arguments:
    """Cast as torch does for its own recurrent cells."""
    arguments = arguments.joined()
    input, weights, bias, states, reset_state = _dispatch.autocast_arguments(
        device, arguments.tensors()
    )
    return arguments._replace(
        input=input,
        weights=weights,
        bias=bias,
        states=states,
        reset_state=reset_state,
    )
