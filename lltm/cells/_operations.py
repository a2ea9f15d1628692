"""ATen's elementwise operations and their text in C++: the one table behind every functor.

``V`` is a vector (or one number), ``Scalar`` its element type; comparisons give masks, which
``Math::select``, ``&``, ``|`` and ``!`` take. What is not an operator is a function of ``Math``. A
text names an operation's arguments as its schema does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten
Arguments = Mapping[str, Any]
"""By the schema's names: the text of a tensor, the value of anything else."""
Text = Callable[[Arguments], str]

ALIASES = {aten.detach.default, aten.clone.default, aten.alias.default}

ZERO = "Scalar(0)"
ONE = "Scalar(1)"


class Unsupported(ValueError):
    """An operation has an entry, but not with these arguments; the message says which."""


def _only(condition: bool, message: str) -> None:
    if not condition:
        raise Unsupported(message)


def _template(text: str) -> Text:
    return lambda arguments: text.format(**arguments)


def _scaled(operator: str, first: str, second: str) -> Text:
    """``first ± alpha * second``."""

    def text(arguments: Arguments) -> str:
        alpha = arguments.get("alpha", 1)
        factor = "" if alpha in (1, "Scalar(1)") else f"{alpha} * "
        return f"{arguments[first]} {operator} {factor}{arguments[second]}"

    return text


def _elu(arguments: Arguments) -> str:
    x, alpha = arguments["self"], arguments["alpha"]
    if arguments["input_scale"] == ONE:
        value = f"Math::elu({x}, {alpha})"
    else:
        inner = f"Math::expm1({x} * {arguments['input_scale']})"
        value = f"Math::select({x} > {ZERO}, {x}, {alpha} * {inner})"
    return value if arguments["scale"] == ONE else f"{arguments['scale']} * {value}"


def _elu_backward(arguments: Arguments) -> str:
    _only(not arguments["is_result"], "it works in place")
    x, alpha, grad = arguments["self_or_result"], arguments["alpha"], arguments["grad_output"]
    if arguments["input_scale"] == ONE:
        slope = f"Math::elu_with_derivative({x}, {alpha}).derivative"
    else:
        scale = arguments["input_scale"]
        inner = f"Math::exp({x} * {scale})"
        slope = f"Math::select({x} > {ZERO}, V{{}} + {ONE}, {alpha} * {scale} * {inner})"
    scaled = slope if arguments["scale"] == ONE else f"{arguments['scale']} * {slope}"
    return f"{grad} * {scaled}"


def _softplus(arguments: Arguments) -> str:
    x, beta, threshold = arguments["self"], arguments["beta"], arguments["threshold"]
    if beta == ONE:
        return f"Math::select({x} > {threshold}, {x}, Math::softplus({x}))"
    return f"Math::select({x} * {beta} > {threshold}, {x}, Math::softplus({x} * {beta}) / {beta})"


def _softplus_backward(arguments: Arguments) -> str:
    x, grad = arguments["self"], arguments["grad_output"]
    scaled = x if arguments["beta"] == ONE else f"{x} * {arguments['beta']}"
    mask = f"{scaled} > {arguments['threshold']}"
    return f"Math::select({mask}, {grad}, {grad} * Math::sigmoid({scaled}))"


def _clamp(arguments: Arguments) -> str:
    """A NaN compares false and so passes through."""
    text: str = arguments["self"]
    if arguments.get("min") is not None:
        text = f"Math::select({text} < {arguments['min']}, V{{}} + {arguments['min']}, {text})"
    if arguments.get("max") is not None:  # also of a min above it
        text = f"Math::select({text} > {arguments['max']}, V{{}} + {arguments['max']}, {text})"
    return text


def _pow(arguments: Arguments) -> str:
    """Half-integer powers, multiplied out."""
    x, text = arguments["self"], str(arguments["exponent"])
    found = re.fullmatch(r"Scalar\((-?[0-9.]+)\)", text)
    exponent = float(found.group(1)) if found else math.nan
    halves = 2 * abs(exponent)
    _only(
        halves in range(10),
        "the exponent must be a constant: -3.5, -3, -2.5 .. to 4.5; of a positive x, write "
        "torch.exp(exponent * torch.log(x))",
    )
    factors = [x] * int(halves // 2) + [f"Math::sqrt({x})"] * int(halves % 2)
    product = " * ".join(factors) or f"V{{}} + {ONE}"
    return product if exponent >= 0 else f"{ONE} / ({product})"


def _lerp(arguments: Arguments) -> str:
    """As torch has it, so that both ends are exact."""
    start, end, weight = arguments["self"], arguments["end"], arguments["weight"]
    near, far = f"{start} + {weight} * ({end} - {start})", f"{end} - ({end} - {start}) * "
    return f"Math::select(V{{}} + {weight} < Scalar(0.5), {near}, {far}({ONE} - {weight}))"


def _hard_sigmoid(arguments: Arguments) -> str:
    x = arguments["self"]
    lower = f"Math::select({x} < Scalar(-3), V{{}}, ({x} + Scalar(3)) / Scalar(6))"
    return f"Math::select({x} > Scalar(3), V{{}} + {ONE}, {lower})"


def _filled(arguments: Arguments) -> str:
    value = arguments.get("fill_value", arguments.get("value", arguments.get("s")))
    return f"V{{}} + {value}"


_SIGN = (  # torch.sign(nan) is 0
    "Math::select({self} > Scalar(0), V{{}} + Scalar(1), "
    "Math::select({self} < Scalar(0), V{{}} - Scalar(1), V{{}}))"
)
_SIXTH = "Scalar(0.1666666716337204)"  # that of a float, as torch has it in every dtype
# Of which a result may be rounded, or wrapped round.
_NARROW = {torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16}
_OF_MASKS = {
    aten.logical_and.default: "{self} & {other}",
    aten.logical_or.default: "{self} | {other}",
    aten.logical_not.default: "!{self}",
    aten.bitwise_and.Tensor: "{self} & {other}",
    aten.bitwise_or.Tensor: "{self} | {other}",
    aten.bitwise_not.default: "!{self}",
}
_COMPARISONS = {
    getattr(getattr(aten, name), overload): f"{{self}} {operator} {{other}}"
    for name, operator in {
        "eq": "==",
        "ne": "!=",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
    }.items()
    for overload in ("Tensor", "Scalar")
}

TABLE: dict[Any, Text] = {
    aten.add.Tensor: _scaled("+", "self", "other"),
    aten.add.Scalar: _scaled("+", "self", "other"),
    aten.sub.Tensor: _scaled("-", "self", "other"),
    aten.sub.Scalar: _scaled("-", "self", "other"),
    aten.rsub.Tensor: _scaled("-", "other", "self"),
    aten.rsub.Scalar: _scaled("-", "other", "self"),
    aten.clamp.default: _clamp,
    aten.clamp_min.default: _clamp,
    aten.clamp_max.default: _clamp,
    aten.elu.default: _elu,
    aten.elu_backward.default: _elu_backward,
    aten.softplus.default: _softplus,
    aten.softplus_backward.default: _softplus_backward,
    aten.pow.Tensor_Scalar: _pow,
    aten.lerp.Tensor: _lerp,
    aten.lerp.Scalar: _lerp,
    aten.hardsigmoid.default: _hard_sigmoid,
    aten.full_like.default: _filled,
    aten.full.default: _filled,
    aten.fill.Scalar: _filled,
    aten.scalar_tensor.default: _filled,
    **dict.fromkeys((*ALIASES, aten._to_copy.default), _template("{self}")),
    **{
        operation: _template(text)
        for operation, text in {
            aten.mul.Tensor: "{self} * {other}",
            aten.mul.Scalar: "{self} * {other}",
            aten.div.Tensor: "{self} / {other}",
            aten.div.Scalar: "{self} / {other}",
            aten.neg.default: "-{self}",
            aten.reciprocal.default: "Scalar(1) / {self}",
            aten.square.default: "{self} * {self}",
            aten.abs.default: "Math::abs({self})",
            aten.sgn.default: _SIGN,
            aten.sign.default: _SIGN,
            aten.sqrt.default: "Math::sqrt({self})",
            aten.rsqrt.default: "Scalar(1) / Math::sqrt({self})",
            aten.exp.default: "Math::exp({self})",
            aten.expm1.default: "Math::expm1({self})",
            aten.log.default: "Math::log({self})",
            aten.log1p.default: "Math::log1p({self})",
            aten.sigmoid.default: "Math::sigmoid({self})",
            aten.sigmoid_backward.default: "{grad_output} * ({output} * (Scalar(1) - {output}))",
            aten.tanh.default: "Math::tanh({self})",
            aten.tanh_backward.default: "{grad_output} * (Scalar(1) - {output} * {output})",
            aten.log_sigmoid_forward.default: "Math::log_sigmoid({self})",
            aten.log_sigmoid_backward.default: "{grad_output} * Math::sigmoid(-{self})",
            aten.celu.default: "Math::select({self} > Scalar(0), {self}, "
            "{alpha} * Math::expm1({self} / {alpha}))",
            aten.silu.default: "{self} * Math::sigmoid({self})",
            aten.maximum.default: "Math::maximum({self}, {other})",
            aten.minimum.default: "Math::minimum({self}, {other})",
            aten.relu.default: "Math::select({self} <= Scalar(0), V{{}}, {self})",
            aten.threshold_backward.default: "Math::select({self} <= {threshold}, V{{}}, "
            "{grad_output})",
            aten.leaky_relu.default: "Math::select({self} > Scalar(0), {self}, "
            "{self} * {negative_slope})",
            aten.leaky_relu_backward.default: "Math::select({self} > Scalar(0), "
            "{grad_output}, {grad_output} * {negative_slope})",
            aten.hardtanh.default: "Math::select({self} < {min_val}, V{{}} + {min_val}, "
            "Math::select({self} > {max_val}, V{{}} + {max_val}, {self}))",
            aten.hardtanh_backward.default: "Math::select(({self} <= {min_val}) | "
            "({self} >= {max_val}), V{{}}, {grad_output})",
            aten.hardsigmoid_backward.default: "Math::select(({self} > Scalar(-3)) & "
            f"({{self}} < Scalar(3)), {{grad_output}} * {_SIXTH}, V{{{{}}}})",
            aten.addcmul.default: "{self} + {value} * {tensor1} * {tensor2}",
            aten.addcdiv.default: "{self} + {value} * {tensor1} / {tensor2}",
            aten.where.self: "Math::select({condition}, {self}, {other})",
            aten.masked_fill.Scalar: "Math::select({mask}, V{{}} + {value}, {self})",
            aten.masked_fill.Tensor: "Math::select({mask}, {value}, {self})",
            **_OF_MASKS,
            aten.zeros_like.default: "V{{}}",
            aten.empty_like.default: "V{{}}",
            aten.ones_like.default: "V{{}} + Scalar(1)",
            **_COMPARISONS,
        }.items()
    },
}
"""Every operation that a step, or the derivative of one, may use."""

DERIVATIVES_ONLY = {
    aten.empty_like.default,  # torch fills it
    aten.sgn.default,  # whose own derivative makes zeros of another shape; torch.sign has one
    *(operation for operation in TABLE if operation.name().endswith("_backward")),
}


def arguments(
    operation: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Any, Any]]:
    """Each argument of an operation's schema, with what was given for it or its default."""
    for index, each in enumerate(operation._schema.arguments):
        default = each.default_value
        yield each, args[index] if index < len(args) else kwargs.get(each.name, default)


# Masks ------------------------------------------------------------------------------------------
# torch counts with what is true or false, as 1 or 0; C++ has a type of its own for it.


def takes_mask(operation: Any, argument: str) -> bool:
    """Whether an operation takes a mask there: what it is for, or what ``where`` chooses by."""
    return operation in _OF_MASKS or argument in ("condition", "mask")


def as_wanted(name: str, is_mask: bool, wants_mask: bool) -> str:
    """The text of a value where a number is wanted or a mask."""
    if is_mask == wants_mask:
        return name
    return f"({name} != {ZERO})" if wants_mask else f"Math::select({name}, V{{}} + {ONE}, V{{}})"


def check_kinds(operation: Any, gives_mask: bool, takes_one: bool) -> None:
    """Raise Unsupported for a mask, or another dtype, where C++ would have something else."""
    if operation in _OF_MASKS or operation in _COMPARISONS:
        _only(gives_mask, "it is for the results of comparisons here, not for bits")
        return
    _only(not gives_mask, "combine what is true or false with &, | and ~")
    changes_dtype = operation is aten._to_copy.default and not takes_one
    _only(not changes_dtype, "a cell is computed in one dtype, that of its tensors")


def check_dtype(operation: Any, dtype: torch.dtype, numbers: Iterable[float]) -> None:
    """Raise Unsupported where torch would round or wrap a value that is neither here."""
    _only(
        operation is aten._to_copy.default or dtype not in _NARROW,
        f"it computes in {dtype}, and a cell is computed in one dtype, that of its tensors",
    )
    whole = all(number.is_integer() for number in numbers)
    _only(
        whole or dtype == torch.bool or dtype.is_floating_point,
        f"{dtype} holds no fraction; give it the dtype of the step's tensors",
    )


def function_names() -> str:
    """What a step can use, as its author writes it."""
    names = {operation.name().split("::")[1].split(".")[0] for operation in TABLE}
    hidden = {operation.name().split("::")[1] for operation in DERIVATIVES_ONLY}
    hidden |= {"fill", "full", "scalar_tensor", "alias", "rsub", "_to_copy"}
    return ", ".join(sorted((names - hidden - {"log_sigmoid_forward"}) | {"logsigmoid"}))
