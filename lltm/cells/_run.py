"""Who computes a sequence."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from lltm import ops
from lltm.cells import _contract, _kernels, _reference
from lltm.cells._contract import Arguments
from lltm.cells._definition import Definition

KERNELS = ("cpu", "cuda")
"""The devices that there are kernels for."""


def run(definition: Definition, arguments: Arguments) -> tuple[Tensor, Tensor]:
    """The hidden states ``[T, B, S]`` and the last states ``[N, B, S]``."""
    device = arguments.input.device.type
    if device in ops.AUTOCAST_DEVICES.values() and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return run(definition, autocast(arguments, device))
    _contract.check(definition, arguments)
    namespace = _kernels.namespace(definition, device) if device in KERNELS else None
    if namespace is None:
        return _reference.sequence(definition, arguments)
    op = getattr(torch.ops, namespace).sequence.default
    results: tuple[Tensor, Tensor] = op(*arguments.in_order())
    return results


def autocast(arguments: Arguments, device: str) -> Arguments:
    """Cast as torch does for its own recurrent cells."""
    input, weights, bias, states, reset_state = ops.autocast_arguments(device, arguments.tensors())
    return replace(
        arguments,
        input=input,
        weights=weights,
        bias=bias,
        states=states,
        reset_state=reset_state,
    )
