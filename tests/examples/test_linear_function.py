from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck
from torch.autograd.gradcheck import GradcheckError


@pytest.fixture
def example(load):
    return load("linear_function")


def test_runs_and_says_what_holds(run):
    output = run("linear_function")
    assert "with a bias: equals F.linear, gradcheck and gradgradcheck pass" in output
    assert "without a bias: equals F.linear, gradcheck and gradgradcheck pass" in output
    assert "Linear(8, 16, bias=False)" in output


@pytest.mark.parametrize("bias", [True, False])
def test_module_equals_nn_linear(example, bias):
    ours, torchs = example.Linear(8, 16, bias=bias), torch.nn.Linear(8, 16, bias=bias)
    torchs.load_state_dict(ours.state_dict())
    input = torch.randn(4, 8)
    torch.testing.assert_close(ours(input), torchs(input))
    ours(input).sum().backward()
    torchs(input).sum().backward()
    for mine, theirs in zip(ours.parameters(), torchs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_absent_bias_is_registered(example):
    module = example.Linear(8, 16, bias=False)
    assert module.bias is None
    assert "bias" in module._parameters
    with pytest.raises(TypeError, match="cannot assign"):
        module.bias = torch.zeros(16)


def test_only_the_wanted_gradients_are_computed(example):
    both = example.backward_flops(input_grad=True, weight_grad=True)
    one = example.backward_flops(input_grad=False, weight_grad=True)
    none = example.backward_flops(input_grad=False, weight_grad=False)
    assert (both, one, none) == (2 * one, one, 0)
    assert one > 0


def test_gradcheck_sees_a_wrong_backward(example, monkeypatch):
    right = example.LinearFunction.backward

    def doubled(ctx, grad_output):
        d_input, d_weight, d_bias = right(ctx, grad_output)
        return 2 * d_input, d_weight, d_bias

    monkeypatch.setattr(example.LinearFunction, "backward", staticmethod(doubled))
    input = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(16, 8, dtype=torch.float64)
    with pytest.raises(GradcheckError):
        gradcheck(example.linear, (input, weight))
