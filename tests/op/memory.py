"""Bytes: what a forward pass keeps for its backward pass, and the most that is held at one time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

MEMORY_EVENT = "[memory]"


def saved_bytes(
    call: Callable[[], Sequence[Tensor]], known: Sequence[Tensor], *, count_outputs: bool = False
) -> int:
    """Bytes of the storages that autograd keeps for the backward pass.

    A storage counts once and as a whole, because a saved view keeps all of it.

    Args:
        call: a forward pass; returns its outputs.
        known: tensors whose storages do not count, such as the arguments: they are there anyway.
        count_outputs: whether those of the outputs count; they are there anyway, too.
    """
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = call()
    for tensor in (*known, *(() if count_outputs else outputs)):
        saved.pop(tensor.untyped_storage().data_ptr(), None)
    return sum(saved.values())


def high_water(call: Callable[[], object]) -> int:
    """The most bytes that torch's CPU allocator held at one time during the call, above before.

    What a library allocates past torch (BLAS, oneDNN) is not seen.
    """
    call()
    # acc_events: up to torch 2.12 a profile without a schedule warns that it may drop events.
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        call()
    events = profile.profiler.kineto_results.events()
    changes = [event for event in events if event.name() == MEMORY_EVENT]
    held = most = 0
    for event in sorted(changes, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def high_water_cuda(call: Callable[[], object]) -> int:
    """The most bytes that torch's CUDA allocator held at one time during the call, above before."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


HIGH_WATER = {"cpu": high_water, "cuda": high_water_cuda}
"""By device."""
