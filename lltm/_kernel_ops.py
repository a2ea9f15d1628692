"""An op with the kernels behind it, the LLTM's or any cell's: what autograd does with those.

Reverse-mode first derivatives are kernels; whatever is rarer is the derivative of the reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch

Function = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class KernelOps:
    """``name``, ``name_forward``, which saves for backward, and ``name_backward``.

    Attributes:
        namespace: where the library registered them.
        name: the op's name.
    """

    namespace: str
    name: str

    def op(self, suffix: str = "") -> Any:
        """The registered overload ``name + suffix``."""
        return getattr(getattr(torch.ops, self.namespace), self.name + suffix).default

    @functools.cached_property
    def forward(self) -> Any:
        """``name_forward``, looked up once."""
        return self.op("_forward")

    @functools.cached_property
    def backward(self) -> Function:
        """``name_backward``, called the short way."""
        return _dispatch.direct(self.op("_backward"))

    def autograd_forward(self) -> Function:
        """What autograd calls for ``name_forward``: it has no derivative of its own."""
        op, public = self.op("_forward"), self.op().name()

        def autograd(*args: Any) -> tuple[Tensor, ...]:
            if torch.is_grad_enabled() and torch._C._any_requires_grad(*args):
                raise NotImplementedError(
                    f"{op.name()} is the kernel behind {public} and has no derivative of its own; "
                    f"call {public}, or detach its arguments"
                )
            _dispatch.refuse_tangents(op, args, f"call {public}, which has one")
            with torch._C._AutoDispatchBelowAutograd():
                results: tuple[Tensor, ...] = op(*args)
                return results

        return autograd

    def autograd_backward(self, differentiable: Function) -> Function:
        """What autograd calls for ``name_backward``; ``differentiable`` computes the same."""
        op, public = self.op("_backward"), self.op().name()

        def autograd(*args: Any) -> tuple[Tensor, ...]:
            reverse = torch.is_grad_enabled() and torch._C._any_requires_grad(*args[:-1])
            if reverse or (_dispatch.is_transformed() and _dispatch.has_tangent(args)):
                if torch._C._are_functorch_transforms_active():
                    raise NotImplementedError(
                        f"{op.name()} cannot be differentiated inside a torch.func transform; "
                        f"transform {public} itself"
                    )
                return differentiable(*args)
            with torch._C._AutoDispatchBelowAutograd():
                results: tuple[Tensor, ...] = op(*args)
                return results

        return autograd


def gradients(
    reference: Function,
    inputs: Sequence[Any],
    positions: Sequence[int],
    needs: Sequence[bool],
    cotangents: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """The results of a ``_backward``: the vector-Jacobian product of the reference at ``inputs``.

    ``needs`` says which of those at ``positions`` have a gradient; that of the others is empty.
    """
    wanted = [index for index, need in zip(positions, needs, strict=True) if need]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        full = list(inputs)
        for index, tensor in zip(wanted, tensors, strict=True):
            full[index] = tensor
        return reference(*full)

    found = iter(_dispatch.vjp(function, [inputs[index] for index in wanted], cotangents))
    return tuple(next(found) if need else inputs[0].new_empty(0) for need in needs)
