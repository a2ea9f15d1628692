"""A program that calls the ops, forward and backward, on tensors behind which memory ends.

To read beyond an argument ends the process; no sanitizer is needed. On Linux.
"""

from __future__ import annotations

import ctypes
import mmap

import cases
import torch
from cases import DTYPES, Case
from torch import Tensor

SIZES = ((1, 33, 17), (5, 7, 13), (17, 40, 50), (64, 20, 37))
"""B, F, S: rows and columns are left over by every vector and tile."""
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def guarded(tensor: Tensor) -> Tensor:
    """A copy in front of a page that can be neither read nor written."""
    length = tensor.numel() * tensor.element_size()
    room = -(-length // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, room + mmap.PAGESIZE)
    guard = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + room
    assert libc.mprotect(guard, mmap.PAGESIZE, 0) == 0, ctypes.get_errno()
    count, offset = tensor.numel(), room - length
    flat = torch.frombuffer(pages, dtype=tensor.dtype, count=count, offset=offset)
    return flat.view(tensor.shape).copy_(tensor)


def main() -> None:
    """Every dtype, a cell and a sequence of each size."""
    for sizes in SIZES:
        for case in (Case("guarded", *sizes), Case("guarded", *sizes, steps=3)):
            for dtype in DTYPES:
                leaves = case.arguments(dtype).map(guarded).leaves()
                outputs = case.function(*leaves, backend="fused")
                seeds = [guarded(seed) for seed in cases.cotangents(outputs)]
                torch.autograd.grad(outputs, leaves.tensors(), seeds)


if __name__ == "__main__":
    main()
