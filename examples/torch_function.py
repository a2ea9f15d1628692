"""Types of your own that torch's functions, and lltm's, accept: ``__torch_function__``.

``ScalarTensor`` is no tensor at all: it stands for a multiple of the identity matrix and has a
table of the functions that it implements. ``MetadataTensor`` is a tensor that carries a dictionary
through every operation. Both go through ``lltm.lltm_cell`` as they go through ``torch.add``.

    python examples/torch_function.py

After "Extending torch" in torch's notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

import lltm

# A type with a table ----------------------------------------------------------------------------


class ScalarTensor:
    """``value`` times the identity matrix of ``size`` rows, of which only two numbers are kept."""

    table: ClassVar[dict[Callable[..., Any], Callable[..., Any]]] = {}
    """Function of torch or lltm -> what does it for this type."""

    def __init__(self, size: int, value: float) -> None:
        self.size = size
        self.value = value

    def __repr__(self) -> str:
        return f"ScalarTensor(size={self.size}, value={self.value})"

    def tensor(self) -> Tensor:
        """The matrix [size, size], with all its zeros."""
        return self.value * torch.eye(self.size)

    @classmethod
    def implements(cls, function: Callable[..., Any]) -> Callable[..., Any]:
        """Enter a function into the table."""

        def enter(implementation: Callable[..., Any]) -> Callable[..., Any]:
            cls.table[function] = implementation
            return implementation

        return enter

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Look the function up; NotImplemented leaves it to the other operands, then TypeError."""
        known = all(issubclass(each, (Tensor, ScalarTensor)) for each in types)
        if not known or function not in cls.table:
            return NotImplemented
        return cls.table[function](*args, **(kwargs or {}))


def ensure_tensor(value: Any) -> Any:
    """A ScalarTensor as the matrix it stands for; anything else as it is."""
    return value.tensor() if isinstance(value, ScalarTensor) else value


# An implementation has the signature of the function it replaces: torch does not check that.


@ScalarTensor.implements(torch.mean)
def mean(input: Any, dim: None = None) -> float:
    """The mean over all elements, zeros included."""
    if dim is not None:
        raise TypeError(f"dim must be None for a ScalarTensor, got {dim!r}")
    return float(input.value / input.size)


@ScalarTensor.implements(torch.add)
def add(input: Any, other: Any, *, alpha: float = 1) -> ScalarTensor | Tensor:
    """``input + alpha * other``: a ScalarTensor if both are, a tensor otherwise."""
    if isinstance(input, ScalarTensor) and isinstance(other, ScalarTensor):
        if input.size != other.size:
            raise ValueError(f"sizes must be equal, got {input.size} and {other.size}")
        return ScalarTensor(input.size, input.value + alpha * other.value)
    return torch.add(ensure_tensor(input), ensure_tensor(other), alpha=alpha)


@ScalarTensor.implements(lltm.lltm_cell)
def lltm_cell(*tensors: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The op knows tensors only: give it those."""
    return lltm.lltm_cell(*map(ensure_tensor, tensors), **options)


# A tensor with luggage --------------------------------------------------------------------------


class MetadataTensor(Tensor):
    """A tensor with a dictionary that every result inherits from its first operand to have one."""

    metadata: dict[str, Any]

    @staticmethod
    def __new__(cls, data: Any, metadata: dict[str, Any]) -> MetadataTensor:
        """Share the memory of ``data``."""
        tensor = torch.as_tensor(data).as_subclass(cls)
        tensor.metadata = metadata
        return tensor

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the function as for any tensor, then hand the dictionary on.

        Through ``super()``, never by calling ``function``: that would come straight back here.
        """
        kwargs = kwargs or {}
        result = super().__torch_function__(function, types, args, kwargs)
        operands = metadata_tensors((*args, *kwargs.values()))
        metadata = next((each.metadata for each in operands if hasattr(each, "metadata")), {})
        for each in metadata_tensors(result):
            if not hasattr(each, "metadata"):
                each.metadata = metadata
        return result


def metadata_tensors(value: Any) -> Iterator[MetadataTensor]:
    """Every MetadataTensor in a value, a list of values, a tuple of tuples ..."""
    if isinstance(value, MetadataTensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from metadata_tensors(each)


# Who is asked first -----------------------------------------------------------------------------


class Declines:
    """Notes that its type was asked, and declines."""

    asked: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        """Decline."""
        Declines.asked.append(cls.__name__)
        return NotImplemented


class Base(Declines):
    """Asked in the order of the operands ..."""


class Derived(Base):
    """... but a subclass before its superclass, wherever it stands."""


class Other(Declines):
    """Unrelated to Base."""


def order(*operands: Any) -> str:
    """In which order the types of the operands are asked to implement ``torch.stack``."""
    Declines.asked.clear()
    try:
        torch.stack(operands)
    except TypeError:
        return ", ".join(Declines.asked)
    raise AssertionError("every operand declined, and torch.stack returned all the same")


def message(function: Callable[..., Any], *args: Any) -> str:
    """What a function that is not implemented says."""
    try:
        function(*args)
    except TypeError as error:
        return str(error).splitlines()[0]
    raise AssertionError(f"{function.__name__} took {args}")


def main() -> None:
    """Call torch's functions and lltm's with both types."""
    print("mean:", torch.mean(ScalarTensor(5, 2)))
    print("add:", torch.add(ScalarTensor(2, 2), ScalarTensor(2, 3), alpha=2))
    print("add:", torch.add(ScalarTensor(2, 2), torch.ones(2, 2)).tolist())
    print("mul:", message(torch.mul, ScalarTensor(2, 2), 3))

    torch.manual_seed(0)
    cell = lltm.LLTM(input_features=4, state_size=3)
    state = torch.zeros(4, 3)
    arguments = (cell.weights, cell.bias, state, state)
    new_h, _ = lltm.lltm_cell(ScalarTensor(4, 2.0), *arguments)
    torch.testing.assert_close(new_h, lltm.lltm_cell(2.0 * torch.eye(4), *arguments)[0])
    print("lltm_cell: a ScalarTensor counts as its matrix")
    print("lltm_sequence:", message(lltm.lltm_sequence, ScalarTensor(4, 2.0), *arguments))

    tagged = MetadataTensor(torch.eye(4), {"owner": "Ministry of Silly Walks"})
    print("metadata after (x + 1).exp():", (tagged + 1).exp().metadata)
    new_h, new_cell = cell(tagged)
    print("metadata after an LLTM:", new_h.metadata, new_cell.metadata)

    print("asked first, Base beside Derived:", order(Base(), Derived()))
    print("asked first, Base beside Other:", order(Base(), Other()))
    print("asked first, Other beside Base:", order(Other(), Base()))
    both = torch.add(tagged, ScalarTensor(4, 1.0))
    print("MetadataTensor declines a ScalarTensor, which then adds:", type(both).__name__)


if __name__ == "__main__":
    main()
