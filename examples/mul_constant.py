"""An argument that is no tensor, and the wrong place to keep a tensor.

``MulConstant`` takes a number beside its tensor. ``KeptSine`` and ``SavedSine`` are one function,
sin(constant * x), that needs a tensor of its forward in its backward. The first keeps that tensor
on ``ctx``: its first derivative is right and its second silently wrong. The second returns it as an
output and saves it: right to any order.

    python examples/mul_constant.py

After "Extending PyTorch" in torch's notes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError


class MulConstant(torch.autograd.Function):
    """``tensor * constant`` for a number ``constant``."""

    @staticmethod
    def forward(tensor: Tensor, constant: float) -> Tensor:
        """Multiply."""
        return tensor * constant

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        """A number has no history to lose: ctx is the place for it."""
        _, ctx.constant = inputs
        # Without this, torch would fill a gradient that nobody computed with zeros.
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor | None) -> tuple[Tensor | None, None]:
        """As many gradients as arguments; that of a number is None."""
        return None if grad_output is None else grad_output * ctx.constant, None


class KeptSine(torch.autograd.Function):
    """sin(constant * x), WRONG beyond the first derivative.

    ``cosine`` was made where autograd records nothing, and ctx hands it back as it is: a constant,
    as far as the derivative of backward can tell.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, constant: float) -> Tensor:
        """The sine, with its derivative's main part kept on ctx."""
        ctx.cosine = torch.cos(constant * x)
        ctx.constant = constant
        return torch.sin(constant * x)

    @staticmethod
    def backward(ctx: Any, grad_sine: Tensor) -> tuple[Tensor, None]:
        """Right in value; its own derivative lacks the term through ``cosine``."""
        return ctx.constant * grad_sine * ctx.cosine, None


class SavedSine(torch.autograd.Function):
    """sin(constant * x) and cos(constant * x): the fix.

    What backward needs is an output, so it can be saved; a saved output comes back with this very
    function as its history, and backward says what its gradient is.
    """

    @staticmethod
    def forward(x: Tensor, constant: float) -> tuple[Tensor, Tensor]:
        """Both, because each is the other's derivative."""
        return torch.sin(constant * x), torch.cos(constant * x)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor]
    ) -> None:
        """The tensors are saved, the number kept."""
        _, ctx.constant = inputs
        ctx.save_for_backward(*output)

    @staticmethod
    def backward(ctx: Any, grad_sine: Tensor, grad_cosine: Tensor) -> tuple[Tensor, None]:
        """The gradient through either output."""
        sine, cosine = ctx.saved_tensors
        return ctx.constant * (grad_sine * cosine - grad_cosine * sine), None


def kept_sine(x: Tensor, constant: float) -> Tensor:
    """sin(constant * x), wrong beyond the first derivative."""
    return KeptSine.apply(x, constant)


def saved_sine(x: Tensor, constant: float) -> Tensor:
    """sin(constant * x); the cosine stays inside."""
    sine, _ = SavedSine.apply(x, constant)
    return sine


def second_derivative(sine: Any, x: Tensor, constant: float) -> Tensor:
    """The second derivative of ``sine(x, constant) ** 2``."""
    (first,) = torch.autograd.grad(sine(x, constant).square(), x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    return second


def main() -> None:
    """Check all three; the kept tensor must fail its gradgradcheck."""
    torch.manual_seed(0)
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)

    gradcheck(MulConstant.apply, (x, 3.0))
    gradgradcheck(MulConstant.apply, (x, 3.0))
    print("MulConstant: gradcheck and gradgradcheck pass")

    gradcheck(kept_sine, (x, 3.0))
    print("KeptSine: gradcheck passes ...")
    try:
        gradgradcheck(kept_sine, (x, 3.0))
    except GradcheckError as error:
        print(f"KeptSine: ... gradgradcheck fails: {str(error).splitlines()[0]}")
    else:
        raise SystemExit("KeptSine passed gradgradcheck: this example no longer shows its point")

    gradcheck(saved_sine, (x, 3.0))
    gradgradcheck(saved_sine, (x, 3.0))
    print("SavedSine: gradcheck and gradgradcheck pass")

    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    truth = 18.0 * torch.cos(6.0 * one.detach())
    print(f"second derivative of sin(3x)^2 at 1: {truth:.4f}")
    print(f"  by KeptSine: {second_derivative(kept_sine, one, 3.0):.4f}, and not a word of warning")
    print(f"  by SavedSine: {second_derivative(saved_sine, one, 3.0):.4f}")


if __name__ == "__main__":
    main()
