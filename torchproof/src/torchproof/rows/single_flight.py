"""Work that several rows share."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class SingleFlight(Generic[Value]):
    """The first row to ask does the work, the others wait for its value or its exception."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, threading.Lock] = {}
        self._values: dict[Hashable, Value] = {}
        self._errors: dict[Hashable, Exception] = {}
        self._lock = threading.Lock()

    def __call__(self, key: Hashable, work: Callable[[], Value]) -> Value:
        """The value of `work`, done once for `key`."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key in self._errors:
                raise self._errors[key]
            if key not in self._values:
                try:
                    self._values[key] = work()
                except Exception as error:
                    self._errors[key] = error
                    raise
            return self._values[key]
