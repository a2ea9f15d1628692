from __future__ import annotations

import contextlib
import inspect
import warnings

import pytest
import torch
from torch.overrides import get_testing_overrides, is_tensor_method_or_property
from torch.testing._internal.generated.annotated_fn_args import annotated_args

import lltm


@pytest.fixture
def example(load):
    return load("torch_function")


def test_runs_and_says_what_holds(run):
    output = run("torch_function")
    assert "mean: 0.4" in output
    assert "lltm_cell: a ScalarTensor counts as its matrix" in output
    assert "no implementation found for 'lltm.functional.lltm_sequence'" in output
    assert "metadata after an LLTM: {'owner': 'Ministry of Silly Walks'}" in output


def test_precedence(example):
    base, derived, other = example.Base(), example.Derived(), example.Other()
    assert example.order(base, derived) == "Derived, Base"
    assert example.order(derived, base) == "Derived, Base"
    assert example.order(base, other) == "Base, Other"
    assert example.order(other, base) == "Other, Base"
    assert example.order(other, base, derived) == "Other, Derived, Base"


def test_the_declining_type_leaves_it_to_the_other(example):
    tagged = example.MetadataTensor(torch.eye(2), {"owner": "me"})
    for operands in (
        (tagged, example.ScalarTensor(2, 1.0)),
        (example.ScalarTensor(2, 1.0), tagged),
    ):
        result = torch.add(*operands)
        assert result.metadata == {"owner": "me"}
        torch.testing.assert_close(torch.Tensor(result), 2 * torch.eye(2))


def test_a_foreign_type_beside_a_scalar_tensor_is_a_type_error(example):
    with pytest.raises(TypeError):
        torch.add(example.ScalarTensor(2, 1.0), example.Other())


def test_metadata_survives_a_module_and_a_backward(example):
    rnn = lltm.LLTMSequence(4, 3, num_layers=2)
    plain = torch.randn(5, 2, 4)
    tagged = example.MetadataTensor(plain, {"owner": "me"})
    output, (h_n, c_n) = rnn(tagged)
    assert {str(each.metadata) for each in (output, h_n, c_n)} == {"{'owner': 'me'}"}
    torch.testing.assert_close(torch.Tensor(output), rnn(plain)[0])
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in rnn.parameters())


# Coverage ---------------------------------------------------------------------------------------

# A value for each type in torch's own table of its functions' arguments.
VALUES = {
    "Scalar": 1,
    "SymInt": 1,
    "int64_t": 1,
    "double": 1.0,
    "bool": True,
    "IntArrayRef": [1],
    "SymIntArrayRef": [1],
    "ArrayRef<double>": [1.0],
    "ScalarList": [1],
    "c10::string_view": "x",
    "Dimname": "N",
    "ScalarType": torch.float32,
    "Layout": torch.strided,
    "Device": "cpu",
}
LISTS = ("TensorList", "ITensorListRef", "c10::List<::std::optional<Tensor>>")


def typed_call(function, value):
    """Call with what torch's generated table says of each argument."""
    args, kwargs = [], {}
    for argument in annotated_args[function]:
        kind = argument["simple_type"].removesuffix("?")
        given = [value, value] if kind in LISTS else VALUES.get(kind, value)
        if argument.get("is_kwarg_only") == "True":
            kwargs[argument["name"]] = given
        else:
            args.append(given)
    function(*args, **kwargs)


def signature_call(function, value):
    """Call with the value for every argument without a default that the dummy's signature has."""
    args, kwargs = [], {}
    for parameter in inspect.signature(get_testing_overrides()[function]).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            args += [value, value]
        elif parameter.default is parameter.empty and parameter.kind is parameter.KEYWORD_ONLY:
            kwargs[parameter.name] = value
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            args.append(value)
    function(*args, **kwargs)


# Those whose arguments neither torch's table nor the dummy's signature tells.
SPECIAL_CALLS = {
    torch.Tensor.polygamma: lambda value: torch.Tensor.polygamma(value, 1),
    torch.unflatten: lambda value: torch.unflatten(value, 0, [2]),
    torch.Tensor.record_stream: lambda value: value.record_stream(torch.Stream("cpu")),
}
# Torch lists it as overridable, but its binding asks no operand.
NEVER_ASKS = {"torch.Tensor.set_"}
# What a call with unfit arguments may raise, before or after the operands are asked.
UNFIT = (TypeError, RuntimeError, ValueError, AttributeError)


def attempts(function):
    """Ways to call an overridable function that might suit its arguments."""
    if function in SPECIAL_CALLS:
        yield SPECIAL_CALLS[function]
    if function in annotated_args:
        yield lambda value: typed_call(function, value)
    yield lambda value: signature_call(function, value)


@pytest.fixture
def overridable():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated functions are overridable, too
        yield get_testing_overrides()


def test_every_overridable_function_reaches_metadata_tensor(example, overridable):
    """An alias, such as ``Tensor.__add__``, may reach it under the name of what it stands for."""
    reached = []

    class Probe(example.MetadataTensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            reached.append(function)
            return NotImplemented

    probe = torch.ones(2, 2).as_subclass(Probe)
    missed = set()
    for function in overridable:
        reached.clear()
        for attempt in attempts(function):
            with contextlib.suppress(*UNFIT):
                attempt(probe)
            if reached:
                break
        else:
            missed.add(torch.overrides.resolve_name(function))
    assert len(overridable) > 1000
    assert missed - NEVER_ASKS == set()


def test_scalar_tensor_implements_or_refuses_every_function(example, overridable):
    """No function takes a ScalarTensor for something else: the table, or TypeError."""
    accepted = set()
    functions = [each for each in overridable if not is_tensor_method_or_property(each)]
    for function in functions:
        for attempt in attempts(function):
            with contextlib.suppress(*UNFIT):
                attempt(example.ScalarTensor(2, 2.0))
                accepted.add(torch.overrides.resolve_name(function))
    assert len(functions) > 500
    assert accepted == {"torch.mean", "torch.add"}


def required(function):
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.default is each.empty]


def test_overrides_require_what_the_overridden_functions_require(example, overridable):
    for function in (torch.mean, torch.add):
        assert required(example.ScalarTensor.table[function]) == required(overridable[function])


@pytest.mark.parametrize("name", ["lltm_cell", "lltm_sequence"])
def test_every_function_of_lltm_can_be_overridden(example, name):
    with pytest.raises(TypeError, match="no implementation found"):
        getattr(lltm.functional, name)(*[example.Other()] * 5)
