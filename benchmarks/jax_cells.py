"""The steps of the cells that ship, as a user of JAX writes them.

A step takes the module ``jax``, the pre-activations, the states and the step's numbers; that of a
split cell takes the input's share of the pre-activations and the recurrent one.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

States = tuple[Any, ...]
Step = Callable[..., States]


def lltm(jax: ModuleType, z: States, state: States, alpha: float) -> States:
    """lltm.cells.formulas.lltm."""
    input_gate, output_gate, candidate = z
    c = state[1] + jax.nn.elu(candidate, alpha) * jax.nn.sigmoid(input_gate)
    return jax.numpy.tanh(c) * jax.nn.sigmoid(output_gate), c


def rnn_tanh(jax: ModuleType, z: States, _: States) -> States:
    """lltm.cells.formulas.rnn_tanh."""
    return (jax.numpy.tanh(z[0]),)


def rnn_relu(jax: ModuleType, z: States, _: States) -> States:
    """lltm.cells.formulas.rnn_relu."""
    return (jax.nn.relu(z[0]),)


def lstm(jax: ModuleType, z: States, state: States) -> States:
    """lltm.cells.formulas.lstm."""
    i, f, g, o = z
    c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
    return jax.nn.sigmoid(o) * jax.numpy.tanh(c), c


def peephole_lstm(jax: ModuleType, z: States, state: States, scale: float) -> States:
    """lltm.cells.formulas.peephole_lstm."""
    i, f, g, o = z
    c = state[1]
    i, f = i + scale * c, f + scale * c
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jax.numpy.tanh(g)
    return jax.nn.sigmoid(o + scale * c) * jax.numpy.tanh(c), c


def gru(jax: ModuleType, z_input: States, z_recurrent: States, state: States) -> States:
    """lltm.cells.formulas.gru."""
    r = jax.nn.sigmoid(z_input[0] + z_recurrent[0])
    u = jax.nn.sigmoid(z_input[1] + z_recurrent[1])
    n = jax.numpy.tanh(z_input[2] + r * z_recurrent[2])
    return (n + u * (state[0] - n),)


def slstm(jax: ModuleType, z: States, state: States) -> States:
    """lltm.cells.formulas.slstm."""
    i, f, g, o = z
    _, c, n, m = state
    log_f = jax.nn.log_sigmoid(f)
    m = jax.numpy.where(n > 0, m, -jax.numpy.inf)
    new_m = jax.numpy.maximum(log_f + m, i)
    input_gate, forget_gate = jax.numpy.exp(i - new_m), jax.numpy.exp(log_f + m - new_m)
    c = forget_gate * c + input_gate * jax.numpy.tanh(g)
    n = forget_gate * n + input_gate
    return jax.nn.sigmoid(o) * c / n, c, n, new_m


STEPS: dict[str, Step] = {
    step.__name__: step for step in (lltm, rnn_tanh, rnn_relu, lstm, peephole_lstm, gru, slstm)
}
"""By the cell's name."""
SPLIT = {"gru"}
"""Cells whose step takes the shares of the pre-activations apart."""
