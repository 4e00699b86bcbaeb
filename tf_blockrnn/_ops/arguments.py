"""Errors that name the argument of a public function that is wrong.

The ops check all their inputs, but name them as the op does, and these are not always the caller's
arguments: gru adds biases, lstm makes states of zeros. What is no tensor does not even reach
them. And of shapes that do not fit each other an op names the first in its own order. So the error
of a call that failed is put into the function's words. A call that succeeds pays nothing for this.
What is known only when a graph runs is left to the ops.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import numbers
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from tf_blockrnn import _tf_private
from tf_blockrnn._ops import docstrings, number_attrs, shapes, tensors

_P = ParamSpec("_P")
_R = TypeVar("_R")

# AttributeError and NotImplementedError: of objects that TensorFlow takes for tensors.
_ERRORS = (
    tf.errors.InvalidArgumentError,
    ValueError,
    TypeError,
    AttributeError,
    NotImplementedError,
)
_DTYPES = {tf.half: "half", **{t: t.name for t in (tf.bfloat16, tf.float32, tf.float64)}}
_LENGTHS = ("lengths", "seq_len_max")
_WITH_OWN_DTYPE = ("mask", "resets", "zoneout_h", "zoneout_c", *_LENGTHS)
# The tensors of each tuple, and the inputs of the ops that these are.
_TUPLES = {
    "initial_state": {"h": "h_prev", "cs": "cs_prev"},
    "state": {"h": "h_prev", "cs": "cs_prev"},
    "peepholes": {"wci": "wci", "wcf": "wcf", "wco": "wco"},
    "kernel_norm": {"gamma": "gamma_x", "beta": "beta_x"},
    "recurrent_norm": {"gamma": "gamma_h", "beta": "beta_h"},
    "state_norm": {"gamma": "gamma_c", "beta": "beta_c"},
}
# What other inputs of the ops are to the functions.
_INPUTS = {
    "b": "b_x",
    "sequence_lengths": "lengths",
    "recurrent_dropout": "recurrent_dropout_factors",
}
# What other libraries' functions take, and what stands for it here.
_ELSEWHERE = {
    "recurrent_dropout": "pass recurrent_dropout_factors, which are drawn once for each call: "
    "tf.nn.dropout(tf.ones([{factors}]), rate); a layer of tf_blockrnn.layers takes a rate",
    "dropout": "apply it to x: tf.nn.dropout(x, rate)",
    **dict.fromkeys(("return_sequences", "return_state"), "outputs and state are both returned"),
}
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
# How an op's error begins, with its name and an argument, and what TensorFlow adds to it.
_OF_OP = re.compile(r"(\w+): (\w+)")
_NODES = re.compile(r" for '\{\{node | \[Op:|\n")


class _Tensor(NamedTuple):
    """A parameter that takes a tensor, or a tuple of them, by its annotation."""

    name: str
    is_tuple: bool
    optional: bool
    or_number: bool


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Makes the errors of a function name its own arguments, and completes its docstring.

    The annotations of the parameters determine the rules: an error of the op may concern tensors
    and tuples of them; an option of type bool accepts integers, as Python does; and None is refused
    for an option of type bool or float, for which an op would use its own default.
    """
    function.__doc__ = docstrings.completed(function.__doc__)
    name, signature = function.__name__, inspect.signature(function)
    kinds = {key: parameter.annotation for key, parameter in signature.parameters.items()}
    flags = [key for key, kind in kinds.items() if kind == "bool"]
    floats = [key for key, kind in kinds.items() if kind in ("float", "float | None")]
    parameters = [
        _Tensor(key, kind.startswith("tuple"), "None" in kind, kind.startswith(("float", "int")))
        for key, kind in kinds.items()
        if "tf.Tensor" in kind
    ]

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for option in flags:
            if option in kwargs:
                kwargs[option] = _flag(f"{name}: {option}", kwargs[option])
        for option in floats:
            if option in kwargs and kwargs[option] is None and kinds[option] == "float":
                raise TypeError(f"{name}: {option} must be a float, got None")
        try:
            return function(*args, **kwargs)
        except _ERRORS as error:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError as wrong_call:
                raise TypeError(_of_wrong_call(name, signature, str(wrong_call))) from None
            given.apply_defaults()
            wrong = next((k for k in floats if not _is_float(given.arguments[k])), None)
            if wrong is not None:
                got = _got(given.arguments[wrong])
                raise TypeError(f"{name}: {wrong} must be a float, {got}") from error
            explained = _explained(name, parameters, given.arguments, error)
            if explained is None:
                raise
            raise explained from error

    # Without it AutoGraph converts all functions below at the first trace, which takes a second.
    _tf_private.hide_from_autograph(call)
    return call


def _is_float(value: Any) -> bool:
    """Whether an option of type float, None where that may be, is a number to Python."""
    return value is None or number_attrs.is_number(value)


def _flag(what: str, value: Any) -> bool:
    if not isinstance(value, (numbers.Integral, np.bool_)):
        raise TypeError(f"{what} must be a bool, {_got(value)}")
    return bool(value)


@tf.autograph.experimental.do_not_convert
def _explained(
    name: str, parameters: list[_Tensor], call: Mapping[str, Any], error: Exception
) -> Exception | None:
    """The error of a call that failed, in the function's words; None if none is seen here."""
    message = getattr(error, "message", str(error))
    own = re.match(rf"{name}: ([\w\[\]]+)", message)
    if own is not None:  # in the function's words, but the argument may have to fit a wrong one
        refused = None if isinstance(error, TypeError) else message.removeprefix(f"{name}: ")
        with contextlib.suppress(*_ERRORS):  # of arguments that are no tensors
            given = dict(_flat(parameters, call))
            if refused and (better := _wrong_shape(name, call, given, refused)):
                return tensors.refusal(f"{name}: {better}{_shapes(given)}")
        return None
    _raise_for_symbolic(call)
    problem = next(filter(None, (_wrong_tuple(name, p, call[p.name]) for p in parameters)), None)
    if problem is None:
        if too_long := _too_long(call):
            return tensors.refusal(f"{name}: {too_long}")
        given = dict(_flat(parameters, call))
        problem = _no_tensor(given, has_lengths="mask" in call) or _wrong_type(given)
    if problem is not None:
        return TypeError(f"{name}: {problem}")
    refused = _refused_by_op(call, given, message)
    if refused is None:
        return None
    return tensors.refusal(
        f"{name}: {_wrong_shape(name, call, given, refused) or refused}{_shapes(given)}"
    )


def _of_wrong_call(name: str, signature: inspect.Signature, message: str) -> str:
    """Python's message, and for an argument that there is not what to give in its place."""
    unexpected = _UNEXPECTED.search(message)
    if unexpected is None:
        return f"{name}: {message}"
    factors = shapes.patterns_of(name).get("recurrent_dropout_factors")
    known = f"its arguments are {', '.join(signature.parameters)}"
    hint = _ELSEWHERE.get(unexpected[1], known)
    if "{factors}" in hint:
        hint = hint.format(factors=factors) if factors else known
    return f"{name}: {message}; {hint}"


def _raise_for_symbolic(call: Mapping[str, Any]) -> None:
    """Raises Keras' own error for a KerasTensor; it shows how to wrap the call in a layer."""
    keras = sys.modules.get("keras")  # imported if there is a KerasTensor
    for value in tf.nest.flatten(list(call.values())) if keras else ():
        if isinstance(value, keras.KerasTensor):
            tf.convert_to_tensor(value)


def _got(value: Any) -> str:
    return "got None" if value is None else f"got a value of type {type(value).__name__}"


def _wrong_tuple(function: str, parameter: _Tensor, value: Any) -> str | None:
    if not parameter.is_tuple or (value is None and parameter.optional):
        return None
    parts, patterns = _TUPLES[parameter.name], shapes.patterns_of(function)
    each = [patterns[f"{parameter.name}[{k}]"] for k in range(len(parts))]
    of_shapes = ", ".join(f"[{shape}]" for shape in each)
    wanted = f"{parameter.name} must be ({', '.join(parts)}), of shapes {of_shapes}"
    if tf.is_tensor(value) or isinstance(value, np.ndarray):
        shape = tf.TensorShape(value.shape)
        if shape.rank not in (None, len(each[0].split(", ")) + 1):
            return f"{wanted}, got one tensor of shape {shape.as_list()}"
    try:
        count = len(list(value))
    except _ERRORS:
        return f"{wanted}, {_got(value)}"
    return None if count == len(parts) else f"{wanted}, got {count} of them"


def _too_long(call: Mapping[str, Any]) -> str | None:
    """Lengths beyond int64, which the ops take, would become other numbers."""
    for name in _LENGTHS:
        with contextlib.suppress(*_ERRORS):  # of none, or of unknown ones
            longest = int(np.asarray(call.get(name), object).max())
            if longest > tf.int64.max:
                return f"{name} must be in 0..T, got {longest}"
    return None


def _flat(parameters: list[_Tensor], call: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The arguments given, those of tuples one by one, and those that must be given."""
    for name, is_tuple, optional, or_number in parameters:
        value = call[name]
        if (value is None and optional) or (or_number and isinstance(value, numbers.Real)):
            continue
        if is_tuple:
            yield from ((f"{name}[{k}]", part) for k, part in enumerate(value))
        else:
            yield name, value


def _no_tensor(given: Mapping[str, Any], has_lengths: bool) -> str | None:
    for name, value in given.items():
        if refused := tensors.not_dense(name, value):
            is_ragged_x = isinstance(value, tf.RaggedTensor) and has_lengths and name == "x"
            return f"{refused}, with lengths=x.row_lengths()" if is_ragged_x else refused
        if not tf.is_tensor(value) and (why := _why_no_tensor(value)) is not None:
            return f"{name} must be a tensor, {_got(value)}{why}"
    return None


def _why_no_tensor(value: Any, dtype: tf.DType | None = None) -> str | None:
    """Why a value cannot be converted, where its type does not say it; None if it can be."""
    try:
        tf.convert_to_tensor(value, dtype)
    except _ERRORS as error:
        return f": {error}" if isinstance(value, (list, tuple, np.ndarray)) else ""
    return None


def _wrong_type(given: Mapping[str, Any]) -> str | None:
    """Numbers and arrays take the type of the tensors, and of these the weights' come first."""
    x, *others = (name for name in given if name not in _WITH_OWN_DTYPE)
    given = {name: given[name] for name in (*others, x)}
    # A variable of TensorFlow 1 has a reference type.
    types = {n: tf.as_dtype(v.dtype).base_dtype for n, v in given.items() if tf.is_tensor(v)}
    if not types:
        types = {name: tf.convert_to_tensor(value).dtype for name, value in [*given.items()][:1]}
    (first, expected), *others = types.items()
    if expected not in _DTYPES:
        return f"{first} must be of type {', '.join(_DTYPES.values())}, got {expected.name}"
    for name, found in others:
        if found != expected:
            return f"{name} must be of type {expected.name}, as {first} is, got {found.name}"
    for name, value in given.items():
        if not tf.is_tensor(value) and (why := _why_no_tensor(value, expected)) is not None:
            return f"{name} must be a tensor of type {expected.name}, {_got(value)}{why}"
    return None


def _refused_by_op(call: Mapping[str, Any], given: Mapping[str, Any], message: str) -> str | None:
    """What an op of this package has refused, by the function's names; None if none has."""
    found = next(filter(_names_argument, _OF_OP.finditer(message)), None)
    if found is None:
        return None
    name, rest = found[2], _NODES.split(message[found.end() :])[0].replace("or [0]", "or None")
    for argument, parts in _TUPLES.items():
        if argument in call and name in parts.values():
            part = f"{argument}[{list(parts.values()).index(name)}]"
            return f"{part if part in given else argument}{rest}"
    name = name if name in call else _INPUTS.get(name, name)
    return name + (rest.replace("got [0]", "got None") if call.get(name, 0) is None else rest)


def _names_argument(found: re.Match[str]) -> bool:
    op = _tf_private.op_def(f"BlockRNN>{found[1]}")
    return op is not None and any(found[2] == own.name for own in (*op.input_arg, *op.attr))


def _wrong_shape(
    name: str, call: Mapping[str, Any], given: Mapping[str, Any], refused: str
) -> str | None:
    """What is wrong with the shapes, where `refused` does not say it; None where it does."""
    blamed = re.match(r"[\w\[\]]*", refused)[0]
    patterns = shapes.patterns_of(
        name,
        time_major=call.get("time_major", False),
        left_out=[key for key, value in call.items() if value is None],
    )
    known = {key: shape for key, shape in _known_shapes(given).items() if key in patterns}
    wrong = shapes.wrong(known, patterns, blamed)
    if wrong is None or call.get(blamed, 0) is None:  # what is None may be what is missing
        return None
    sizes = "[" + ", ".join("?" if size is None else str(size) for size in wrong.sizes) + "]"
    if wrong.name == blamed and f"= {sizes}" in refused:
        return f"{refused}, its transpose" if wrong.is_transposed else None
    message = f"{wrong.name} must have shape {wrong.symbols} = {sizes}, got {known[wrong.name]}"
    if wrong.name == "recurrent_dropout_factors":
        return f"{message}; tf.nn.dropout(tf.ones({sizes}), rate) draws them"
    return f"{message}, its transpose" if wrong.is_transposed else message


def _known_shapes(given: Mapping[str, Any]) -> dict[str, list[int | None] | None]:
    shapes_of = {
        name: tf.TensorShape((v if hasattr(v, "shape") else tf.convert_to_tensor(v)).shape)
        for name, v in given.items()
    }
    return {name: s.as_list() if s.rank is not None else None for name, s in shapes_of.items()}


def _shapes(given: Mapping[str, Any]) -> str:
    """The shapes of a call: of two that do not fit each other one is named."""
    return "; given are " + ", ".join(
        f"{name} {'?' if shape is None else shape}" for name, shape in _known_shapes(given).items()
    )
