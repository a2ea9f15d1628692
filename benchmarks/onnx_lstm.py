"""The LLTM by ONNX Runtime's LSTM kernel.

It is an LSTM whose forget gate is saturated, a sigmoid of SATURATED whatever it reads, and whose
candidate goes through an ELU: the activations are attributes of ONNX's LSTM operator.
"""

from __future__ import annotations

from typing import Any

import torch
from cases import Arguments
from torch import Tensor

from benchmarks.not_here import NotHere
from benchmarks.workloads import Foreign, Row

SATURATED = 1e3
"""Its sigmoid is exactly 1 in float32."""
OPSET, IR_VERSION = 14, 8


def problem(row: Row, arguments: Arguments) -> Foreign:
    """The row's outputs by one LSTM node; a cell is a sequence of one step."""
    try:
        import onnx  # noqa: F401, PLC0415 - where it is installed
        import onnxruntime  # noqa: PLC0415 - where it is installed
    except ImportError as error:
        raise NotHere(f"{error.name} is not installed") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = row.threads
    options.inter_op_num_threads = 1
    # Its threads must not go on spinning while another competitor is timed.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        model(arguments), options, providers=["CPUExecutionProvider"]
    )
    steps = arguments.input if row.case.steps is not None else arguments.input.unsqueeze(0)
    states = {"h": arguments.h, "c": arguments.c}
    feeds = {
        "x": steps.numpy(),
        **{name: each.unsqueeze(0).numpy() for name, each in states.items()},
    }

    def tensors() -> list[Tensor]:
        output, h, c = map(torch.from_numpy, session.run(None, feeds))
        h, c = h[0], c[0]
        return [h, c] if row.case.steps is None else [output[:, 0], h, c]

    return Foreign(lambda: session.run(None, feeds), tensors)


def model(arguments: Arguments) -> bytes:
    """An ONNX model with one LSTM node; its gates are in the order i, o, f, c."""
    from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - where it is installed

    weights, state = arguments.weights, arguments.h.size(1)
    z_i, z_o, z_c = weights.split(state)
    gates = torch.cat([z_i, z_o, torch.zeros_like(z_i), z_c])
    bias_i, bias_o, bias_c = arguments.bias.view(-1).split(state)
    bias = torch.cat([bias_i, bias_o, torch.full_like(bias_i, SATURATED), bias_c])
    constants: dict[str, Tensor] = {
        "W": gates[:, state:],
        "R": gates[:, :state],
        "B": torch.cat([bias, torch.zeros_like(bias)]),
    }
    activations: dict[str, Any] = {
        "activations": ["Sigmoid", "Elu", "Tanh"],
        "activation_alpha": [float(arguments.alpha)],
    }
    node = helper.make_node(
        "LSTM",
        ["x", "W", "R", "B", "", "h", "c"],
        ["output", "h_n", "c_n"],
        hidden_size=state,
        **activations,
    )

    def values(names: tuple[str, ...]) -> list[Any]:
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]

    graph = helper.make_graph(
        [node],
        "lltm",
        values(("x", "h", "c")),
        values(("output", "h_n", "c_n")),
        [
            numpy_helper.from_array(tensor.unsqueeze(0).contiguous().numpy(), name)
            for name, tensor in constants.items()
        ],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    made: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION
    ).SerializeToString()
    return made
