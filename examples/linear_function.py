"""A linear layer whose derivative is written by hand: autograd.Function, then nn.Module.

Torch has this layer already, and that is why it is here: every line can be held against the one it
repeats. What the file teaches is how a Function states its inputs, saves what backward reads,
computes only the gradients somebody asked for, and stays differentiable to any order.

    python examples/linear_function.py

After "Extending PyTorch" in torch's notes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode


class LinearFunction(torch.autograd.Function):
    """``input @ weight.T + bias``, with or without the bias."""

    @staticmethod
    def forward(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """``input`` [B, I], ``weight`` [O, I], ``bias`` [O] or None -> [B, O]."""
        output = input.mm(weight.t())
        return output if bias is None else output + bias

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor
    ) -> None:
        """Save what backward reads. Saved, not kept on ctx: only saved tensors have a history."""
        input, weight, _ = inputs
        ctx.save_for_backward(input, weight)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        """One gradient for each argument of forward, None for those nobody asked for.

        It is written in differentiable operations, so its own derivative comes for free.
        """
        input, weight = ctx.saved_tensors
        needs_input, needs_weight, needs_bias = ctx.needs_input_grad  # a bias of None needs none
        d_input = grad_output.mm(weight) if needs_input else None
        d_weight = grad_output.t().mm(input) if needs_weight else None
        d_bias = grad_output.sum(0) if needs_bias else None
        return d_input, d_weight, d_bias


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The function to call: ``apply`` takes neither keywords nor defaults."""
    return LinearFunction.apply(input, weight, bias)


class Linear(nn.Module):
    """The function with its parameters, as ``nn.Linear``."""

    def __init__(self, input_features: int, output_features: int, bias: bool = True) -> None:
        super().__init__()
        self.input_features = input_features
        self.output_features = output_features
        self.weight = nn.Parameter(torch.empty(output_features, input_features))
        # Registered even when there is none: `self.bias` then exists, state_dict() and to() know
        # the name, and nobody can assign a plain tensor to it unnoticed.
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(output_features)) if bias else None
        )
        bound = input_features**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        """``input`` [B, input_features] -> [B, output_features]."""
        return linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """What stands between the brackets when the module is printed."""
        return f"{self.input_features}, {self.output_features}, bias={self.bias is not None}"


def backward_flops(*, input_grad: bool, weight_grad: bool) -> int:
    """What backward multiplies and adds when these gradients are wanted."""
    input = torch.ones(4, 8, requires_grad=input_grad)
    weight = torch.ones(16, 8, requires_grad=weight_grad)
    output = linear(input, weight, torch.ones(16, requires_grad=True))
    with FlopCounterMode(display=False) as counter:
        output.backward(torch.ones_like(output))
    return counter.get_total_flops()


def main() -> None:
    """Check the derivatives, the module and the saving, and say so."""
    torch.manual_seed(0)
    input = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(16, 8, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(16, dtype=torch.float64, requires_grad=True)
    for name, arguments in {"with": (input, weight, bias), "without": (input, weight)}.items():
        torch.testing.assert_close(linear(*arguments), F.linear(*arguments))
        gradcheck(linear, arguments)
        gradgradcheck(linear, arguments)
        print(f"{name} a bias: equals F.linear, gradcheck and gradgradcheck pass")

    both = backward_flops(input_grad=True, weight_grad=True)
    one = backward_flops(input_grad=False, weight_grad=True)
    print(f"backward: {both} flops for both gradients, {one} when the input needs none")

    print(Linear(8, 16), Linear(8, 16, bias=False), sep="\n")
    print("names in state_dict:", ", ".join(Linear(8, 16).state_dict()))


if __name__ == "__main__":
    main()
