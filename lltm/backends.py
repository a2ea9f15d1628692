"""The backends: who computes the op, where, and in which dtypes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lltm import _dispatch, _library, contract, reference

ENVIRONMENT = "LLTM_BACKEND"
DEFAULT = os.environ.get(ENVIRONMENT) or None  # set to nothing is not set
"""The backend that the environment named when lltm was imported; a program may set another one,
as ``examples/train.py`` does. To look the variable up at every call took a twentieth of a small
cell's."""


@dataclass(frozen=True)
class Backend:
    """One way to compute the op.

    Attributes:
        name: what ``backend=`` and ``LLTM_BACKEND`` call it.
        bindings: the bindings whose library carries it; empty if it needs no library.
        devices: torch device types it computes on.
        dtypes: dtypes it computes in.
        cell: ``(input, weights, bias, old_h, old_cell, alpha) -> (new_h, new_cell)``.
        sequence: ``(input, weights, bias, h0, c0, alpha) -> (output, h_n, c_n)``.
        source: one line on what it is made of.
    """

    name: str
    bindings: tuple[str, ...]
    devices: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    cell: Callable[..., tuple[Tensor, Tensor]]
    sequence: Callable[..., tuple[Tensor, Tensor, Tensor]]
    source: str

    def is_available(self) -> bool:
        """Whether this installation can compute with it."""
        return not self.bindings or any(name in _library.namespaces() for name in self.bindings)


def _op(name: str, *bindings: str) -> Callable[..., Any]:
    """The op of that name in the first loaded one of the bindings, looked up at the first call."""

    def look_up() -> Any:
        loaded = _library.namespaces()
        namespace = next(loaded[binding] for binding in bindings if binding in loaded)
        return getattr(getattr(torch.ops, namespace), name).default

    direct = functools.cache(lambda: _dispatch.direct(look_up()))

    def call(*args: Any) -> Any:
        if torch.compiler.is_compiling():  # Dynamo traces past a cache, with a warning
            return look_up()(*args)
        return direct()(*args)

    return call


def composed(check: Callable[..., None], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch's own ops under the op's contract and autocast rule.

    Those of a library have them from the dispatcher.

    Args:
        check: ``check_cell`` or ``check_sequence`` of ``lltm.contract``.
        function: computes a row's ``cell`` or ``sequence``.
    """

    def call(*args: Any) -> Any:
        device = args[0].device.type
        if _dispatch.casts(device):
            with torch.autocast(device, enabled=False):
                return call(*_dispatch.autocast_arguments(device, args))
        check(*args)
        return function(*args)

    return call


def _compiled(
    name: str, bindings: tuple[str, ...], devices: tuple[str, ...], source: str, suffix: str = ""
) -> Backend:
    """A backend by a library's ops, ``cell`` and ``sequence`` with a suffix."""
    cell, sequence = (_op(f"{op}{suffix}", *bindings) for op in ("cell", "sequence"))
    return Backend(name, bindings, devices, contract.DTYPES, cell, sequence, source)


BACKENDS: tuple[Backend, ...] = (
    Backend(
        name="reference",
        bindings=(),
        devices=("cpu", "cuda"),
        dtypes=contract.DTYPES,
        cell=composed(contract.check_cell, reference.cell),
        sequence=composed(contract.check_sequence, reference.sequence),
        source="plain PyTorch, the definition of correct",
    ),
    _compiled(
        "aten",
        ("native", "jit"),
        ("cpu", "cuda"),
        "C++, composed of ATen ops as in the tutorial",
        suffix="_aten",
    ),
    _compiled("jit", ("jit",), ("cpu",), "fused CPU kernels, built here by lltm.jit.load()"),
    _compiled("fused", ("stable", "native"), ("cpu",), "fused CPU kernels"),
    _compiled("cuda", ("cuda",), ("cuda",), "fused CUDA kernels"),
    _compiled(
        "jit_cuda",
        ("jit_cuda",),
        ("cuda",),
        "fused CUDA kernels, built here for this GPU by lltm.jit.load()",
    ),
)
"""Every backend there is, slowest first."""


def available() -> tuple[Backend, ...]:
    """The backends this installation can compute with, slowest first."""
    return tuple(backend for backend in BACKENDS if backend.is_available())


def get(name: str, source: str = "backend") -> Backend:
    """The backend of that name.

    Args:
        name: a backend's.
        source: what an error calls the argument or variable that named it.

    Raises:
        ValueError: no backend has that name, or this installation lacks it.
    """
    for backend in BACKENDS:
        if backend.name == name:
            break
    else:
        known = ", ".join(row.name for row in BACKENDS)
        raise ValueError(f"{source} must be one of {known}, got {name!r}")
    if not backend.is_available():
        if backend.name == "cuda":
            raise ValueError(_library.missing_cuda())
        loaded = " and ".join(_library.namespaces()) or "no"
        raise ValueError(
            f"backend {name!r} needs the {' or '.join(backend.bindings)} binding, loaded here: "
            f"{loaded}; call lltm.jit.load() first, or install that binding"
        )
    return backend


def select(name: str | None, input: Tensor) -> Backend:
    """The backend to use: the named one, else :data:`DEFAULT`, else the fastest there is.

    Args:
        name: a backend's name or ``None``.
        input: the op's ``input``; its device decides.

    Raises:
        TypeError: ``input`` is not a tensor.
        ValueError: the backend is unknown, not carried by this installation, or does not compute
            on the device of ``input``.
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"input must be a Tensor, got {type(input).__name__}")
    chosen = name or DEFAULT
    if chosen is None:
        if torch.compiler.is_compiling():  # Dynamo traces past a cache, with a warning
            return fastest(input.device.type)
        return _remembered_fastest(input.device, len(_library.namespaces()))
    backend = get(chosen, "backend" if name else ENVIRONMENT)
    device = input.device.type
    if device not in (*backend.devices, "meta"):
        raise ValueError(
            f"backend {chosen!r} computes on {' and '.join(backend.devices)}, input is on {device}"
        )
    return backend


@functools.cache
def _remembered_fastest(device: torch.device, _loaded: int) -> Backend:
    # A library loaded since, seen by _loaded, may have brought a faster one.
    return fastest(device.type)


def fastest(device: str) -> Backend:
    """The fastest backend of this installation for tensors on a type of device.

    Raises:
        ValueError: no backend computes there; of ``cuda`` the message names what to install.
    """
    wanted = "cpu" if device == "meta" else device
    if wanted == "cuda" and not {"cuda", "jit_cuda"} & _library.namespaces().keys():
        # Never a slower backend in silence.
        raise ValueError(_library.missing_cuda())
    for backend in reversed(BACKENDS):
        if wanted in backend.devices and backend.is_available():
            return backend
    raise ValueError(f"no backend of this installation computes on {device}; see `python -m lltm`")
