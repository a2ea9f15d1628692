"""The LLTM as functions: :func:`lltm_cell` for one step, :func:`lltm_sequence` for many.

Both are differentiable in every tensor argument, to any order, and honour ``__torch_function__``
like torch's own functions.
"""

from __future__ import annotations

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from lltm import backends, contract


def lltm_cell(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    old_h: Tensor,
    old_cell: Tensor,
    alpha: float = 1.0,
    *,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of the LLTM recurrent unit.

    Args:
        input: ``[B, F]``; float32, float64, bfloat16 or float16.
        weights: ``[3S, S + F]``, rows ordered input gate, output gate, candidate cell; the first
            ``S`` columns multiply ``old_h``, the rest ``input``.
        bias: ``[3S]``, ``[1, 3S]`` or ``None``; its gradient has its own shape.
        old_h: hidden state ``[B, S]``.
        old_cell: cell state ``[B, S]``.
        alpha: the candidate ELU's scale for negative arguments, finite and not negative.
        backend: a name from :data:`lltm.backends.BACKENDS`; ``None`` takes the one that the
            environment variable ``LLTM_BACKEND`` named when lltm was imported, else the fastest for
            the device.

    Returns:
        ``(new_h, new_cell)``, each ``[B, S]``, dtype and device of ``input``.

    Raises:
        RuntimeError: an argument's rank, size, dtype or device does not fit, or ``alpha`` is
            negative or not finite.
        TypeError: an argument that must be a tensor is not one.
        ValueError: ``backend`` is unknown, not in this installation, or not for this device.

    Source: PyTorch tutorial "Custom C++ and CUDA Extensions".
    """
    tensors = (input, weights, bias, old_h, old_cell)
    if has_torch_function(tensors):
        result: tuple[Tensor, Tensor] = handle_torch_function(
            lltm_cell, tensors, *tensors, alpha, backend=backend
        )
        return result
    contract.check_types("cell", contract.CELL_TENSORS, tensors)
    return backends.select(backend, input).cell(input, weights, bias, old_h, old_cell, alpha)


def lltm_sequence(
    input: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    alpha: float = 1.0,
    *,
    backend: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The LLTM recurrent unit over a sequence.

    Args:
        input: ``[T, B, F]``; float32, float64, bfloat16 or float16. ``T`` may be 0.
        weights: ``[3S, S + F]``, as for :func:`lltm_cell`.
        bias: ``[3S]``, ``[1, 3S]`` or ``None``.
        h0: initial hidden state ``[B, S]``.
        c0: initial cell state ``[B, S]``.
        alpha: the candidate ELU's scale for negative arguments, finite and not negative.
        backend: as for :func:`lltm_cell`.

    Returns:
        ``(output, h_n, c_n)``: the hidden states ``[T, B, S]``, and the last hidden and cell state,
        each ``[B, S]``.

    Raises:
        RuntimeError, TypeError, ValueError: as for :func:`lltm_cell`.

    Source: PyTorch tutorial "Custom C++ and CUDA Extensions", run over time.
    """
    tensors = (input, weights, bias, h0, c0)
    if has_torch_function(tensors):
        result: tuple[Tensor, Tensor, Tensor] = handle_torch_function(
            lltm_sequence, tensors, *tensors, alpha, backend=backend
        )
        return result
    contract.check_types("sequence", contract.SEQUENCE_TENSORS, tensors)
    return backends.select(backend, input).sequence(input, weights, bias, h0, c0, alpha)
