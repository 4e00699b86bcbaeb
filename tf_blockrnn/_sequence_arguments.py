"""Says which argument of a function over whole sequences does not fit, in the function's own names.

The ops check all that they are given, and name their own inputs, which are not always the caller's
arguments: gru splits weights and adds up biases, lstm makes states from the shape of w_h. So a call
that was refused is held against the contract below; one that is fine pays nothing for it. What is
known only when a graph runs stays with the ops.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tf_blockrnn import _gradient_util as util

_REFUSALS = (tf.errors.InvalidArgumentError, ValueError, TypeError)
_DTYPES = {tf.half: "half", **{t: t.name for t in (tf.bfloat16, tf.float32, tf.float64)}}
_HAVE_TYPES_OF_THEIR_OWN = ("mask", "sequence_lengths")


class _Argument(NamedTuple):
    name: str
    value: Any
    dims: list[str]  # each a letter, a number or, as 4H, both


def in_own_names(gates: int) -> Callable[[Callable], Callable]:
    """Makes what a function of so many gates raises name its own arguments.

    Where their types and shapes tell nothing it raises what it would have raised anyway.
    """

    def decorate(function: Callable) -> Callable:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except _REFUSALS as error:
                if str(error).startswith(f"{function.__name__}: "):
                    raise  # the function's own words
                fault = _fault(signature, gates, args, kwargs)
                if fault is None:
                    raise
                raise util.refusal(f"{function.__name__}: {fault}") from error

        return call

    return decorate


@tf.autograph.experimental.do_not_convert
def _fault(signature: inspect.Signature, gates: int, args: tuple, kwargs: Mapping) -> str | None:
    """What is wrong with the arguments of a call; None when nothing of it is seen here."""
    try:
        call = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    call.apply_defaults()
    arguments = _contract(gates, call.arguments)
    return (
        _wrong_number(call.arguments)
        or _not_dense(arguments)
        or _wrong_type(arguments)
        or _wrong_shape(arguments)
    )


def _contract(gates: int, call: Mapping[str, Any]) -> list[_Argument]:
    """The arguments given, those first whose shapes say what those of others must be.

    And w_p, whose absence says something too.
    """
    gated = f"{gates}H" if gates > 1 else "H"
    steps = "T B" if call["time_major"] else "B T"
    state = "P" if "w_p" in call else "H"
    width = gated if call["w_x"] is None else "I"
    dims = {
        "w_h": f"{state} {gated}",
        "w_p": "P H",
        "x": f"{steps} {width}",
        "w_x": f"I {gated}",
        "b": gated,
        "b_x": gated,
        "b_h": gated,
        "initial_state": "B H",
        "initial_state[0]": f"B {state}",
        "initial_state[1]": "B H",
        **{f"peepholes[{k}]": "H" for k in range(3)},
        "recurrent_dropout": f"{gates} B {state}",
        "sequence_lengths": "B",
        "mask": steps,
    }
    given = dict(call)
    if "peepholes" in call:
        given |= _parts("initial_state", given.pop("initial_state"))
        given |= _parts("peepholes", given.pop("peepholes"))
    return [
        _Argument(name, given[name], expected.split())
        for name, expected in dims.items()
        if given.get(name) is not None or (name == "w_p" and name in given)
    ]


def _parts(name: str, value: Any) -> dict[str, Any]:
    return {f"{name}[{k}]": part for k, part in enumerate(_listed(value) or ())}


def _listed(value: Any) -> list | None:
    """The tensors of a tuple of them, or along the first dim of one; None where that tells none."""
    try:
        return None if value is None else list(value)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        return None


def _wrong_number(call: Mapping[str, Any]) -> str | None:
    """Of the tensors that lstm takes as tuples."""
    if "peepholes" not in call:
        return None
    for name, parts in {"initial_state": ["h", "cs"], "peepholes": ["wci", "wcf", "wco"]}.items():
        given = _listed(call[name])
        if given is not None and len(given) != len(parts):
            return f"{name} must be ({', '.join(parts)}), got {len(given)} of them"
    return None


def _not_dense(arguments: Sequence[_Argument]) -> str | None:
    for name, value, _ in arguments:
        if isinstance(value, tf.SparseTensor):
            return f"{name} must be a dense tensor, got a SparseTensor; tf.sparse.to_dense makes it"
        if isinstance(value, tf.RaggedTensor):
            lengths = ", with sequence_lengths=row_lengths()" if name == "x" else ""
            return (
                f"{name} must be a dense tensor, got a RaggedTensor; pass its to_tensor(){lengths}"
            )
    return None


def _wrong_type(arguments: Sequence[_Argument]) -> str | None:
    """Of the tensors; what is none takes the type of those that are."""
    floats = [a for a in arguments if a.name not in _HAVE_TYPES_OF_THEIR_OWN]
    types = {a.name: tf.as_dtype(a.value.dtype) for a in floats if tf.is_tensor(a.value)}
    if not types:
        types = {a.name: tf.convert_to_tensor(a.value).dtype for a in floats[:1]}
    (first, expected), *others = types.items()
    if expected not in _DTYPES:
        return f"{first} must be of type {', '.join(_DTYPES.values())}, got {expected.name}"
    for name, found in others:
        if found != expected:
            return f"{name} must be of type {expected.name}, as {first} is, got {found.name}"
    return None


def _wrong_shape(arguments: Sequence[_Argument]) -> str | None:
    sizes: dict[str, int] = {}
    for argument in arguments:
        if argument.value is None:
            fault = _needed(argument, sizes)
        else:
            fault = _wrong_dims(argument, sizes)
        if fault is not None:
            return fault
    return None


def _needed(absent: _Argument, sizes: Mapping[str, int]) -> str | None:
    """A matrix that may be left out only if it is square."""
    known = [_expected(dim, sizes) for dim in absent.dims]
    if None in known or known[0] == known[1]:
        return None
    rows, columns = absent.dims
    return (
        f"{absent.name} must have shape [{rows}, {columns}] = {known}, "
        f"or be None where {rows} = {columns}, got None"
    )


def _wrong_dims(argument: _Argument, sizes: dict[str, int]) -> str | None:
    """Whether an argument has the sizes that those before it have told; it adds what it tells."""
    name, value, dims = argument
    shape = _static_shape(value)
    if shape.rank is None:
        return None
    form = f"[{', '.join(dims)}]"
    if shape.rank != len(dims):
        s = "" if len(dims) == 1 else "s"
        return f"{name} must have {len(dims)} dim{s}, {form}, got shape {shape.as_list()}"
    if all([_fits(dim, size, sizes) for dim, size in zip(dims, shape, strict=True)]):
        return None
    known = ", ".join(str(_expected(dim, sizes)) for dim in dims).replace("None", "?")
    return f"{name} must have shape {form} = [{known}], got shape {shape.as_list()}"


def _static_shape(value: Any) -> tf.TensorShape:
    try:
        return tf.TensorShape(value.shape if hasattr(value, "shape") else tf.constant(value).shape)
    except (TypeError, ValueError):  # no tensor, which the error at hand says
        return tf.TensorShape(None)


def _factor_and_letter(dim: str) -> tuple[int, str]:
    factor, letter = re.fullmatch(r"(\d*)([A-Z]?)", dim).groups()
    return int(factor or 1), letter


def _expected(dim: str, sizes: Mapping[str, int]) -> int | None:
    factor, letter = _factor_and_letter(dim)
    if not letter:
        return factor
    return factor * sizes[letter] if letter in sizes else None


def _fits(dim: str, size: int | None, sizes: dict[str, int]) -> bool:
    """Whether a size is the expected one; where none is expected yet, it says what will be."""
    expected = _expected(dim, sizes)
    if size is None or expected is not None:
        return size is None or size == expected
    factor, letter = _factor_and_letter(dim)
    if size % factor:
        return False
    sizes[letter] = size // factor
    return True
