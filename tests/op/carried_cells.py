"""What a library with the kernels of other cells must do."""

from __future__ import annotations

from installed_copy import InstalledCopy

PROGRAM = """
import torch
from lltm import cells
from lltm.cells import formulas

torch.manual_seed(0)
x = torch.randn(4, 2, 3)
for ours, theirs in (
    (cells.LSTM(3, 5), torch.nn.LSTM(3, 5)),
    (cells.GRU(3, 5), torch.nn.GRU(3, 5)),
):
    ours.load_state_dict(theirs.state_dict())
    print(cells.prepare(ours.cell))
    torch.testing.assert_close(ours(x)[0], theirs(x)[0])

slstm = cells.SLSTM(3, 5)
print(cells.prepare(slstm.cell))
states = [torch.zeros(2, 5)] * 4
for step in x:
    z = torch.cat((states[0], step), 1) @ slstm.weight_l0.T + slstm.bias_l0
    states = formulas.slstm(z.chunk(4, 1), states)
torch.testing.assert_close(slstm(x)[0][-1], states[0])
"""


def assert_carries_cells(copy: InstalledCopy) -> None:
    """They are right, and nothing is compiled for them."""
    done = copy.run("-c", PROGRAM, CXX="no-such-compiler")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 3
    assert not done.stderr
