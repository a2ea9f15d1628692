"""What forward keeps for backward: as few values as will do, and of those the last ones.

Whatever backward needs is computed again from what is kept and from the states, which are kept
anyway. The fewest values are a minimum cut between the pre-activations and what backward reads,
each value a node of capacity 1; among cuts of one size the one nearest backward has the least to
compute again.
"""

from __future__ import annotations

from collections import deque

from lltm.cells._formula import Formula

_Vertex = tuple[str, str]
"""A value's name and ``in`` or ``out``; what flows between them is what keeping it would cost."""
_SOURCE, _SINK = ("", "source"), ("", "sink")
_UNBOUNDED = 1 << 30


def needed(formula: Formula) -> set[str]:
    """What backward reads of forward."""
    found = {name for name in (*formula.d_z, *formula.d_state) if not _is_gradient(formula, name)}
    for value in formula.values.values():
        if value.from_gradient:
            found |= {name for name in value.inputs if not _is_gradient(formula, name)}
    return found


def _is_gradient(formula: Formula, name: str) -> bool:
    return formula.values[name].from_gradient


def saved(formula: Formula) -> tuple[str, ...]:
    """The names of the values that forward keeps, by the first pre-activation in them."""
    network = _network(formula)
    while path := _path(network):
        for start, end in path:
            network[start][end] -= 1
            network[end][start] = network[end].get(start, 0) + 1
    reaching = _reaching_sink(network)
    kept = [
        name
        for name in formula.values
        if (name, "in") in network and (name, "in") not in reaching and ((name, "out") in reaching)
    ]
    return tuple(sorted(kept, key=_first_pre_activation(formula).__getitem__))


def _first_pre_activation(formula: Formula) -> dict[str, int]:
    """For each value the index of the first pre-activation it depends on."""
    first: dict[str, int] = {}
    for index, (name, value) in enumerate(formula.values.items()):
        from_inputs = (first[each] for each in value.inputs)
        first[name] = index if name.startswith("z[") else min(from_inputs, default=_UNBOUNDED)
    return first


def _network(formula: Formula) -> dict[_Vertex, dict[_Vertex, int]]:
    free = set(formula.states)
    network: dict[_Vertex, dict[_Vertex, int]] = {_SOURCE: {}, _SINK: {}}
    wanted = needed(formula)
    for name, value in formula.values.items():
        if value.from_gradient or name in free or name.startswith("state["):
            continue
        entry, leaving = (name, "in"), (name, "out")
        network[entry] = {leaving: _UNBOUNDED if value.is_mask else 1}
        network[leaving] = {}
        if name.startswith("z["):
            network[_SOURCE][entry] = _UNBOUNDED
        for each in value.inputs:
            if (each, "out") in network:
                network[(each, "out")][entry] = _UNBOUNDED
        if name in wanted:
            network[leaving][_SINK] = _UNBOUNDED
    return network


def _path(network: dict[_Vertex, dict[_Vertex, int]]) -> list[tuple[_Vertex, _Vertex]]:
    """A shortest way for one more unit, or nothing."""
    came: dict[_Vertex, _Vertex] = {}
    queue = deque([_SOURCE])
    while queue and _SINK not in came:
        vertex = queue.popleft()
        for other, capacity in network[vertex].items():
            if capacity > 0 and other not in came and other != _SOURCE:
                came[other] = vertex
                queue.append(other)
    path = []
    vertex = _SINK
    while vertex in came:
        path.append((came[vertex], vertex))
        vertex = came[vertex]
    return path


def _reaching_sink(network: dict[_Vertex, dict[_Vertex, int]]) -> set[_Vertex]:
    reaching = {_SINK}
    queue = deque([_SINK])
    while queue:
        vertex = queue.popleft()
        for other, edges in network.items():
            if other not in reaching and edges.get(vertex, 0) > 0:
                reaching.add(other)
                queue.append(other)
    return reaching
