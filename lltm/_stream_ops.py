"""``stream_step`` and ``pack`` beyond their kernels: fakes, and what autograd must know.

The former writes two of its arguments, and torch has no fallback that knows what that means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch, contract

WRITTEN = {4: "cell", 5: "new_h"}
"""The arguments that ``stream_step`` writes, by position."""


def _fake_pack(weights: Tensor) -> Tensor:
    elements, dtype = contract.check_pack(weights)
    return weights.new_empty(elements, dtype=dtype)


def _autograd_stream_step(op: Any) -> Callable[..., None]:
    def autograd(*args: Any) -> None:
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
            raise NotImplementedError(
                f"{op.name()} has no derivative and writes cell and new_h in place; call it under "
                f"torch.no_grad(), or detach what requires grad"
            )
        _dispatch.refuse_tangents(op, args, "call lltm::cell, which has one")
        with torch._C._AutoDispatchBelowAutograd():
            op(*args)

    return autograd


def _autograd_pack(op: Any) -> Callable[[Tensor], Tensor]:
    def autograd(weights: Tensor) -> Tensor:
        contract.check_types("pack", ("weights",), (weights,))
        if torch.is_grad_enabled() and weights.requires_grad:
            raise NotImplementedError(
                f"{op.name()} has no derivative; call it under torch.no_grad(), or detach weights"
            )
        _dispatch.refuse_tangents(op, (weights,), "call lltm::cell with the weights, which has one")
        with torch._C._AutoDispatchBelowAutograd():
            packed: Tensor = op(weights)
            return packed

    return autograd


def _versioned_stream_step(op: Any) -> Callable[..., None]:
    """Count the write, so that autograd notices what it saved and what is no longer there."""

    def versioned(*args: Any) -> None:
        with torch._C._AutoDispatchBelowADInplaceOrView():
            op(*args)
        torch.autograd.graph.increment_version([args[index] for index in WRITTEN])

    return versioned


def _resolved_stream_step(op: Any) -> Callable[..., None]:
    """For views whose values are negated or conjugated when they are read."""

    def resolved(*args: Any) -> None:
        for index, name in WRITTEN.items():
            if args[index].is_neg() or args[index].is_conj():
                raise RuntimeError(
                    f"{op.name()}: {name} is written in place and must not be a negated or "
                    f"conjugated view, got one; call resolve_neg() or resolve_conj() on it first"
                )
        op(*(a.resolve_conj().resolve_neg() if isinstance(a, Tensor) else a for a in args))

    return resolved


def register(namespace: str, library: torch.library.Library) -> None:
    op = getattr(torch.ops, namespace).stream_step.default
    pack = getattr(torch.ops, namespace).pack.default
    torch.library.register_fake(f"{namespace}::pack", _fake_pack, lib=library)
    library.impl("pack", _autograd_pack(pack), "Autograd")
    # It returns nothing and changes no shape.
    fake = contract.check_stream_step
    torch.library.register_fake(f"{namespace}::stream_step", fake, lib=library)
    library.impl("stream_step", _autograd_stream_step(op), "Autograd")
    library.impl("stream_step", _versioned_stream_step(op), "ADInplaceOrView")
    for key in ("Conjugate", "Negative"):
        library.impl("stream_step", _resolved_stream_step(op), key)
