"""The thread on which steps are traced."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def _start_autograd() -> None:
    """Have torch count the GPUs before make_fx feigns some, in a build for CUDA that finds none.

    Autograd would start a thread for each, and refuse to work in every fork from then on.
    """
    torch.zeros((), requires_grad=True).backward()


class _Tracer:
    """The thread that traces, for torch keeps what make_fx traces in one global.

    It lives as long as the process. torch 2.10 and 2.11, built for CUDA and without a GPU, point to
    memory of the thread that traced last, and the next trace ended the process. And every torch
    leaves a Python object with a thread that ran autograd: a thread that ends with the interpreter,
    as an executor's does, may want to free that object too late, which ends the process, too.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._starting = threading.Lock()
        self._started = False

    def submit(self, call: Callable[[], R]) -> Future[R]:
        """Have a function called; what it returns or raises is in the future."""
        with self._starting:
            if not self._started:
                self._calls.put((Future(), _start_autograd))
                threading.Thread(target=self._run, name="lltm.cells", daemon=True).start()
                self._started = True
        future: Future[R] = Future()
        self._calls.put((future, call))
        return future

    def _run(self) -> None:
        while True:
            self._do(*self._calls.get())

    @staticmethod
    def _do(future: Future[R], call: Callable[[], R]) -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # the caller's
            future.set_exception(error)
        finally:
            del future, call  # which an error's traceback would keep


_tracers: dict[int, _Tracer] = {}
"""By process: a fork has no thread of its parent's."""


def apart(function: Callable[P, R], *args: P.args, **options: P.kwargs) -> R:
    """Call what runs a step, on the thread that traces.

    It has none of the caller's modes, such as inference mode or fake tensors, under which torch
    hands over other operations, nor hooks on saved tensors, as a checkpoint sets them, under which
    torch.func refuses to work.
    """
    tracer = _tracers.setdefault(os.getpid(), _Tracer())
    return tracer.submit(partial(function, *args, **options)).result()
