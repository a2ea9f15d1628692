"""Checkpoints of the tutorial's class, both ways.

The tutorial's ``LLTM`` has the same parameters as :class:`lltm.modules.LLTM`, in the same order and
with the same values for the same seed, but its ``bias`` is ``[1, 3S]`` where ours is ``[3S]``. Its
``state_dict`` loads into ours as it is; the rest goes through the functions here.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn, optim

from lltm.modules import LLTM


def state_dict(module: nn.Module) -> dict[str, Any]:
    """A module's ``state_dict``, with every bias of ours as ``[1, 3S]``.

    It loads into the same module written with the tutorial's class.

    Args:
        module: an :class:`lltm.modules.LLTM`, or a module that has some.
    """
    converted: dict[str, Any] = dict(module.state_dict())
    for prefix, part in module.named_modules():
        if isinstance(part, LLTM) and part.bias is not None:
            key = f"{prefix}.bias" if prefix else "bias"
            converted[key] = converted[key].unsqueeze(0)
    return converted


def optimizer_state(optimizer: optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """An optimizer's ``state_dict`` whose tensors have the shapes of ``optimizer``'s parameters.

    It takes the state that an optimizer had for the tutorial's class to one for ours, and back: a
    tensor that differs from its parameter's shape by a leading 1 is reshaped, any other is left as
    it is. Without it ``load_state_dict`` succeeds, and the next ``step`` fails or broadcasts.

    Args:
        optimizer: the one to be loaded.
        state_dict: what another one's ``state_dict()`` gave; it is not changed.

    Returns:
        What ``optimizer.load_state_dict`` takes. The function is also a hook, for an optimizer
        that others load: ``optimizer.register_load_state_dict_pre_hook(optimizer_state)``.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    indices = [index for group in state_dict["param_groups"] for index in group["params"]]
    states = dict(state_dict["state"])
    for index, parameter in zip(indices, parameters, strict=False):  # load_state_dict counts them
        if index in states:
            states[index] = {name: _like(value, parameter) for name, value in states[index].items()}
    return {**state_dict, "state": states}


def _like(value: Any, parameter: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return value
    ours, theirs = tuple(parameter.shape), tuple(value.shape)
    fits = theirs == (1, *ours) or (1, *theirs) == ours
    return value.reshape(ours) if fits else value
