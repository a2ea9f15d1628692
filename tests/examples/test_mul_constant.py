from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError


@pytest.fixture
def example(load):
    return load("mul_constant")


@pytest.fixture
def x():
    return torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)


def test_runs_and_says_what_holds(run):
    output = run("mul_constant")
    assert "MulConstant: gradcheck and gradgradcheck pass" in output
    assert "gradgradcheck fails: Jacobian mismatch" in output
    assert "SavedSine: gradcheck and gradgradcheck pass" in output


def test_a_number_gets_no_gradient(example, x):
    output = example.MulConstant.apply(x, 3.0)
    torch.testing.assert_close(output, 3.0 * x)
    assert [edge[0] is None for edge in output.grad_fn.next_functions] == [False]


def test_an_absent_gradient_is_not_filled_with_zeros(example):
    assert example.MulConstant.backward(object(), None) == (None, None)


def test_a_kept_tensor_breaks_the_second_derivative_only(example, x):
    assert gradcheck(example.kept_sine, (x, 3.0))
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradgradcheck(example.kept_sine, (x, 3.0))


def test_a_saved_tensor_fixes_it(example, x):
    assert gradcheck(example.saved_sine, (x, 3.0))
    assert gradgradcheck(example.saved_sine, (x, 3.0))


def test_the_second_derivative_is_wrong_in_silence(example):
    one = torch.ones((), dtype=torch.float64, requires_grad=True)
    truth = 18.0 * torch.cos(6.0 * one.detach())
    torch.testing.assert_close(example.second_derivative(example.saved_sine, one, 3.0), truth)
    assert abs(example.second_derivative(example.kept_sine, one, 3.0) - truth) > 0.1
