"""lltm.LLTM in the place of the tutorial's class, and back: models, and optimizers under way."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import cases
import pytest
import torch
from torch import Tensor, nn

import lltm

F, S = 3, 4


class Tutorial(nn.Module):
    """The class of PyTorch's tutorial, its forward pass composed."""

    def __init__(self, input_features: int, state_size: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(3 * state_size, input_features + state_size))
        self.bias = nn.Parameter(torch.empty(1, 3 * state_size))
        for weight in self.parameters():
            weight.data.uniform_(-(state_size**-0.5), state_size**-0.5)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        old_h, old_cell = state
        gates = nn.functional.linear(torch.cat([old_h, x], dim=1), self.weights, self.bias)
        input_gate, output_gate, candidate = gates.chunk(3, dim=1)
        new_cell = old_cell + nn.functional.elu(candidate) * torch.sigmoid(input_gate)
        return torch.tanh(new_cell) * torch.sigmoid(output_gate), new_cell


def test_drop_in_for_the_tutorial() -> None:
    """Same seed, same parameters, same results; its state_dict loads, with a bias of [1, 3S]."""
    torch.manual_seed(7)
    theirs = Tutorial(F, S)
    torch.manual_seed(7)
    ours = lltm.LLTM(F, S)
    assert torch.equal(ours.weights, theirs.weights)
    assert torch.equal(ours.bias, theirs.bias[0])
    torch.manual_seed(8)
    theirs = Tutorial(F, S)
    state_dict = theirs.state_dict()
    ours.load_state_dict(state_dict)
    assert state_dict["bias"].shape == (1, 3 * S)
    x, state = torch.randn(2, F), (torch.randn(2, S), torch.randn(2, S))
    for actual, expected in zip(ours(x, state), theirs(x, state), strict=True):
        cases.assert_close(actual, expected, "tutorial")
    nested = nn.ModuleDict({"rnn": ours})
    nested.load_state_dict({f"rnn.{name}": value for name, value in state_dict.items()})
    assert torch.equal(ours.bias, theirs.bias[0])


# Checkpoints ------------------------------------------------------------------------------------


def nested(cell: type[nn.Module]) -> nn.Module:
    """A model with two cells, at two depths, and a bias of another module between them."""
    inner = nn.ModuleDict({"cell": cell(F, S), "linear": nn.Linear(S, F)})
    return nn.ModuleDict({"first": inner, "second": cell(F, S)})


def test_a_state_dict_goes_back() -> None:
    ours, theirs = nested(lltm.LLTM), nested(Tutorial)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    theirs.load_state_dict(lltm.tutorial.state_dict(ours))
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor.reshape(before[name].shape), before[name])
    again = nested(lltm.LLTM)
    again.load_state_dict(theirs.state_dict())
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, before[name])
    single = lltm.LLTM(F, S)
    Tutorial(F, S).load_state_dict(lltm.tutorial.state_dict(single))
    assert list(lltm.tutorial.state_dict(lltm.LLTM(F, S, bias=False))) == ["weights"]


OPTIMIZERS: dict[str, Any] = {
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=0.1, amsgrad=True),
    "AdamW": partial(torch.optim.AdamW, lr=0.1, foreach=False),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.1),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.1),
}


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        x, h, c = (torch.randn(5, size, generator=generator).double() for size in (F, S, S))
        optimizer.zero_grad()
        cases.loss(model(x, (h, c))).backward()
        optimizer.step()


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        cases.assert_close(mine.detach(), other.detach().reshape(mine.shape), "parameter")


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_with_the_state_of_the_optimizer(name: str, hook: bool) -> None:
    def load(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        state = copy.deepcopy(state)  # as a file does: torch would share the tensors
        if hook:
            optimizer.register_load_state_dict_pre_hook(lltm.tutorial.optimizer_state)
            optimizer.load_state_dict(state)
        else:
            optimizer.load_state_dict(lltm.tutorial.optimizer_state(optimizer, state))

    theirs, ours = Tutorial(F, S).double(), lltm.LLTM(F, S).double()
    their_optimizer = OPTIMIZERS[name](theirs.parameters())
    our_optimizer = OPTIMIZERS[name](ours.parameters())
    train(theirs, their_optimizer)
    ours.load_state_dict(theirs.state_dict())
    load(our_optimizer, their_optimizer.state_dict())
    train(ours, our_optimizer)
    train(theirs, their_optimizer)
    assert_same(ours, theirs)
    theirs.load_state_dict(lltm.tutorial.state_dict(ours))
    load(their_optimizer, our_optimizer.state_dict())
    train(ours, our_optimizer)
    train(theirs, their_optimizer)
    assert_same(ours, theirs)


def test_a_state_that_fits_is_left_as_it_is() -> None:
    """Of any optimizer: two groups, one parameter without a state."""
    model = nested(lltm.LLTM)
    groups = [{"params": list(part.parameters())} for part in model.values()]
    optimizer = torch.optim.Adam(groups)
    for parameter in list(model.parameters())[1:]:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = optimizer.state_dict()
    converted = lltm.tutorial.optimizer_state(optimizer, state)
    assert converted["param_groups"] == state["param_groups"]
    assert converted["state"].keys() == state["state"].keys()
    for index, values in state["state"].items():
        for name, tensor in values.items():
            assert converted["state"][index][name] is tensor
