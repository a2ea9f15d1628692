"""A program that uses lltm in every way; prints the warnings that Python gave, as JSON.

A process of its own: torch gives many a warning only once.
"""

from __future__ import annotations

import json
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cases import Case


def ops(case: Case) -> None:
    """Both modes of autograd, twice differentiated, and vmap."""
    import torch

    leaves = case.arguments(torch.float64).leaves()
    outputs = case.function(*leaves)
    total = sum(output.sum() for output in outputs)
    first = torch.autograd.grad(total, leaves.tensors(), create_graph=True)
    sum(gradient.sum() for gradient in first).backward()

    x, *others = case.arguments(torch.float64)

    def alone(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return case.function(x, *others)

    torch.func.jvp(alone, (x,), (x,))
    torch.func.vmap(alone)(torch.stack([x, x]))
    torch.autograd.gradcheck(alone, x.requires_grad_(), check_forward_ad=True)


def tools(case: Case) -> None:
    """torch's own tools: opcheck, tracing, autocast."""
    import torch

    torch.library.opcheck(case.raw(), case.arguments().leaves())
    compiled = torch.compile(case.function, fullgraph=True, backend="aot_eager")
    sum(output.sum() for output in compiled(*case.arguments().leaves())).backward()
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        case.function(*case.arguments())


def modules() -> None:
    """A step of training, a copy, what is stored and restored, and a call with states, compiled."""
    import copy

    import torch

    import lltm

    model = lltm.LLTMSequence(3, 4, num_layers=2, dropout=0.5, bidirectional=True)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(3, 2, 3))[0].sum().backward()
    optimizer.step()
    copy.deepcopy(model).load_state_dict(model.state_dict())
    torch.export.export(model.eval(), (torch.randn(3, 2, 3),))
    states = torch.zeros(2, 4, 2, 4).unbind()
    torch.compile(model, fullgraph=True, backend="aot_eager")(torch.randn(3, 2, 3), states)


def main() -> None:
    """Do all of it and print the warnings."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        from cases import Case

        for steps in (None, 3):
            case = Case("warned", 2, 3, 4, steps=steps)
            ops(case)
            tools(case)
        modules()
    unique = {f"{warning.category.__name__}: {warning.message}" for warning in given}
    print(json.dumps(sorted(unique)))


if __name__ == "__main__":
    main()
