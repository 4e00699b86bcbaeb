"""Says which argument of a public function does not fit, in the function's own names.

The ops check all that they are given, and name their own inputs, which are not always the caller's
arguments: gru splits weights and adds up biases, lstm makes states from the shape of w_h. What is
no tensor does not even reach them. So a call that was refused is held against the contract below;
one that is fine pays nothing for it. What is known only when a graph runs stays with the ops.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_blockrnn._ops import tensors

# AttributeError: of what TensorFlow takes for a tensor and is none; NotImplementedError: of what
# Keras and TensorFlow have for a tensor whose elements are not known.
_REFUSALS = (
    tf.errors.InvalidArgumentError,
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
)
_DTYPES = {tf.half: "half", **{t: t.name for t in (tf.bfloat16, tf.float32, tf.float64)}}
_HAVE_TYPES_OF_THEIR_OWN = ("mask", "sequence_lengths")


class _Argument(NamedTuple):
    name: str
    value: Any
    dims: list[str]  # each a letter, a number or, as 4H, both; none where the op says the shape


class _Function(NamedTuple):
    signature: inspect.Signature
    gates: int | None
    tuples: dict[str, str]

    @property
    def hints(self) -> dict[str, str]:
        return {name: p.annotation for name, p in self.signature.parameters.items()}

    def may_be_none(self, argument: str) -> bool:
        return self.hints[argument].endswith("| None")


def in_own_names(gates: int | None = None, **tuples: str) -> Callable[[Callable], Callable]:
    """Makes what a function raises name its own arguments.

    Where they tell nothing it raises what it would have raised anyway. None is refused for each
    option whose type is bool or float: an op would take its own default, another than ours. Numbers
    are taken for a bool, as Python and Keras take them; ops would not.

    Args:
      gates: of a function over whole sequences. None: of a function whose arguments have the names
        of the op's inputs, so that the op says well enough which shape is wrong.
      tuples: for each argument that is a tuple of tensors, the names of these.
    """

    def decorate(function: Callable) -> Callable:
        contract = _Function(inspect.signature(function), gates, tuples)
        options = {name: hint for name, hint in contract.hints.items() if hint in ("bool", "float")}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name, hint in options.items():
                if name in kwargs:
                    kwargs[name] = _option(f"{function.__name__}: {name}", hint, kwargs[name])
            try:
                return function(*args, **kwargs)
            except _REFUSALS as error:
                if str(error).startswith(f"{function.__name__}: "):
                    raise  # the function's own words
                fault = _fault(contract, args, kwargs)
                if fault is None:
                    raise
                raise tensors.refusal(f"{function.__name__}: {fault}") from error

        return call

    return decorate


def _option(what: str, hint: str, value: Any) -> Any:
    """The value of an option, of type bool or float, as an op takes it."""
    if hint == "bool" and isinstance(value, (numbers.Integral, np.bool_)):
        return bool(value)
    if value is None or hint == "bool":
        raise tensors.refusal(f"{what} must be a {hint}, {_got(value)}")
    return value


@tf.autograph.experimental.do_not_convert
def _fault(function: _Function, args: tuple, kwargs: Mapping) -> str | None:
    """What is wrong with the arguments of a call; None when nothing of it is seen here."""
    try:
        call = function.signature.bind(*args, **kwargs)
    except TypeError:
        return None
    call.apply_defaults()
    arguments = _contract(function, call.arguments)
    return (
        _wrong_number(function, call.arguments)
        or _too_long(call.arguments)
        or _not_dense(arguments)
        or _no_tensor(arguments)
        or _wrong_type(arguments)
        or _wrong_shape(arguments)
    )


def _contract(function: _Function, call: Mapping[str, Any]) -> list[_Argument]:
    """The arguments given, those first whose shapes say what those of others must be.

    And those that must be given; and w_p, whose absence says something too.
    """
    given = dict(call)
    absent = {name for name, value in call.items() if value is None and function.may_be_none(name)}
    parts = {}
    for name in function.tuples:
        parts |= _parts(name, given.pop(name))
    given |= parts
    if function.gates is None:
        tensors = [name for name, hint in function.hints.items() if hint == "tf.Tensor"]
        dims = dict.fromkeys([*tensors, *parts], "")
    else:
        dims = _dims(function.gates, call)
    return [
        _Argument(name, given[name], expected.split())
        for name, expected in dims.items()
        if name in given and (name not in absent or name == "w_p")
    ]


def _dims(gates: int, call: Mapping[str, Any]) -> dict[str, str]:
    """Of the arguments that a function over whole sequences may have."""
    gated = f"{gates}H" if gates > 1 else "H"
    steps = "T B" if call["time_major"] else "B T"
    # Without w_p, P = H: what w_h says it is.
    rows = "P" if "w_p" in call else "H"
    state = "H" if call.get("w_p") is None else "P"
    width = gated if call["w_x"] is None else "I"
    return {
        "w_h": f"{rows} {gated}",
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


def _parts(name: str, value: Any) -> dict[str, Any]:
    return {f"{name}[{k}]": part for k, part in enumerate(_listed(value) or ())}


def _listed(value: Any) -> list | None:
    """The tensors of a tuple of them, or along the first dim of one; None where that tells none."""
    try:
        return None if value is None else list(value)
    except _REFUSALS:
        return None


def _got(value: Any) -> str:
    return "got None" if value is None else f"got a value of type {type(value).__name__}"


def _wrong_number(function: _Function, call: Mapping[str, Any]) -> str | None:
    """Of the tensors that are taken as tuples."""
    for name, parts in function.tuples.items():
        value = call[name]
        if value is None and function.may_be_none(name):
            continue
        given = _listed(value)
        if given is None:
            return f"{name} must be ({parts}), {_got(value)}"
        if len(given) != len(parts.split()):
            return f"{name} must be ({parts}), got {len(given)} of them"
    return None


def _too_long(call: Mapping[str, Any]) -> str | None:
    """Whether a length is none of int64, which the ops take: as such it would be another number."""
    for name in ("sequence_lengths", "seq_len_max"):
        try:
            longest = int(np.asarray(call.get(name), object).max())
        except _REFUSALS:
            continue  # none, or no numbers, or none that are known
        if longest > tf.int64.max:
            return f"{name} must be in 0..T, got {longest}"
    return None


def _not_dense(arguments: Sequence[_Argument]) -> str | None:
    for name, value, dims in arguments:
        if isinstance(value, tf.SparseTensor):
            return f"{name} must be a dense tensor, got a SparseTensor; tf.sparse.to_dense makes it"
        if isinstance(value, tf.RaggedTensor):
            lengths = ", with sequence_lengths=row_lengths()" if name == "x" and dims else ""
            return (
                f"{name} must be a dense tensor, got a RaggedTensor; pass its to_tensor(){lengths}"
            )
    return None


def _no_tensor(arguments: Sequence[_Argument]) -> str | None:
    for name, value, _ in arguments:
        if tf.is_tensor(value) or (value is None and name == "w_p"):
            continue
        try:
            tf.convert_to_tensor(value)
        except _REFUSALS:
            return f"{name} must be a tensor, {_got(value)}"
    return None


def _wrong_type(arguments: Sequence[_Argument]) -> str | None:
    """Of the tensors; what is none takes the type of those that are."""
    floats = [a for a in arguments if a.name not in _HAVE_TYPES_OF_THEIR_OWN]
    # A variable of TensorFlow 1 has a reference type.
    types = {a.name: tf.as_dtype(a.value.dtype).base_dtype for a in floats if tf.is_tensor(a.value)}
    if not types:
        types = {a.name: tf.convert_to_tensor(a.value).dtype for a in floats[:1]}
    (first, expected), *others = types.items()
    if expected not in _DTYPES:
        return f"{first} must be of type {', '.join(_DTYPES.values())}, got {expected.name}"
    for name, found in others:
        if found != expected:
            return f"{name} must be of type {expected.name}, as {first} is, got {found.name}"
    for name, value, _ in floats:
        if tf.is_tensor(value) or value is None:
            continue
        try:
            tf.convert_to_tensor(value, expected)
        except _REFUSALS:
            return f"{name} must be a tensor of type {expected.name}, {_got(value)}"
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
    if shape.rank is None or not dims:
        return None
    form = f"[{', '.join(dims)}]"
    if shape.rank != len(dims):
        s = "" if len(dims) == 1 else "s"
        return f"{name} must have {len(dims)} dim{s}, {form}, got shape {shape.as_list()}"
    if all([_fits(dim, size, sizes) for dim, size in zip(dims, shape.as_list(), strict=True)]):
        return None
    known = ", ".join(str(_expected(dim, sizes)) for dim in dims).replace("None", "?")
    return f"{name} must have shape {form} = [{known}], got shape {shape.as_list()}"


def _static_shape(value: Any) -> tf.TensorShape:
    try:
        given = value if hasattr(value, "shape") else tf.convert_to_tensor(value)
        return tf.TensorShape(given.shape)
    except _REFUSALS:  # no tensor, which the error at hand says
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
