"""Errors that name the argument of a public function that is wrong.

The ops check all their inputs, but name them as the op does, and these are not always the caller's
arguments: gru splits weights, lstm makes states of zeros. What is no tensor does not even reach
them. So a call that failed is compared with the shapes declared beside the function. A call that
succeeds pays nothing for this. What is known only when a graph runs is left to the ops.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from tf_blockrnn._ops import tensors

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
_WITH_OWN_DTYPE = ("mask", "sequence_lengths", "zoneout_state", "zoneout")
_OR_NUMBER = ("zoneout_state", "zoneout")

Shapes = Mapping[str, str | Mapping[str, str]]


class _Argument(NamedTuple):
    name: str
    value: Any
    dims: list[str]


def checked(
    shapes: Shapes, *, flags: Sequence[str] = (), floats: Sequence[str] = ()
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes the errors of a function name its own arguments.

    Args:
      shapes: the dims of each tensor by its argument, those first that determine the sizes, the
        weights. A dim is a sum of terms such as I, 4H and 3. A name with a `?` may be None. A
        tuple of tensors has the dims of each by name. Without a projection P is H, with
        time_major T is before B, and without w_x the input has the width of w_h.
      flags: options of type bool. Integers are accepted as Python does, None is not: an op would
        use its own default.
      floats: options of type float; None is refused likewise.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        name, signature = function.__name__, inspect.signature(function)

        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for option in flags:
                if option in kwargs:
                    kwargs[option] = _flag(f"{name}: {option}", kwargs[option])
            for option in floats:
                if option in kwargs and kwargs[option] is None:
                    raise tensors.refusal(f"{name}: {option} must be a float, got None")
            try:
                return function(*args, **kwargs)
            except _ERRORS as error:
                if str(error).startswith(f"{name}: "):
                    raise  # it names the argument
                try:
                    given = signature.bind(*args, **kwargs)
                except TypeError:
                    raise error from None
                given.apply_defaults()
                problem = _problem(shapes, given.arguments)
                if problem is None:
                    raise
                raise tensors.refusal(f"{name}: {problem}") from error

        return call

    return decorate


def _flag(what: str, value: Any) -> bool:
    if not isinstance(value, (numbers.Integral, np.bool_)):
        raise tensors.refusal(f"{what} must be a bool, {_got(value)}")
    return bool(value)


@tf.autograph.experimental.do_not_convert
def _problem(shapes: Shapes, call: Mapping[str, Any]) -> str | None:
    """The first problem of a call that failed; None if there is none to be seen here."""
    _raise_for_symbolic(call)
    found = _wrong_tuple(shapes, call) or _too_long(call)
    if found is not None:
        return found
    arguments = list(_flat(shapes, call))
    return (
        _not_dense(arguments, has_lengths="sequence_lengths" in call)
        or _no_tensor(arguments)
        or _wrong_type(arguments)
        or _wrong_shape(arguments, call)
    )


def _raise_for_symbolic(call: Mapping[str, Any]) -> None:
    """Raises Keras' own error for a KerasTensor; it shows how to wrap the call in a layer."""
    keras = sys.modules.get("keras")  # imported if there is a KerasTensor
    for value in tf.nest.flatten(list(call.values())) if keras else ():
        if isinstance(value, keras.KerasTensor):
            tf.convert_to_tensor(value)


def _flat(shapes: Shapes, call: Mapping[str, Any]) -> Iterator[_Argument]:
    """The arguments given, those of tuples one by one, and those that must be given."""
    for key, dims in shapes.items():
        name = key.rstrip("?")
        value = call[name]
        if value is None and key.endswith("?"):
            continue
        if name in _OR_NUMBER and isinstance(value, numbers.Real):
            continue
        if isinstance(dims, str):
            yield _Argument(name, value, _dims(name, dims, call))
        else:
            for k, (part, expected) in enumerate(zip(_listed(value), dims.values(), strict=True)):
                yield _Argument(f"{name}[{k}]", part, _dims(name, expected, call))


def _dims(name: str, dims: str, call: Mapping[str, Any]) -> list[str]:
    if call.get("time_major"):
        dims = re.sub("^B T", "T B", dims)
    if call.get("w_p") is None and name != "w_h":
        dims = dims.replace("P", "H")
    return dims.split()


def _listed(value: Any) -> list[Any] | None:
    """The elements of a tuple of tensors; None if it has none that are known."""
    try:
        return None if value is None else list(value)
    except _ERRORS:
        return None


def _got(value: Any) -> str:
    return "got None" if value is None else f"got a value of type {type(value).__name__}"


def _wrong_tuple(shapes: Shapes, call: Mapping[str, Any]) -> str | None:
    for key, dims in shapes.items():
        value = call[key.rstrip("?")]
        if isinstance(dims, str) or (value is None and key.endswith("?")):
            continue
        wanted = f"{key.rstrip('?')} must be ({', '.join(dims)})"
        given = _listed(value)
        if given is None:
            return f"{wanted}, {_got(value)}"
        if len(given) != len(dims):
            return f"{wanted}, got {len(given)} of them"
    return None


def _too_long(call: Mapping[str, Any]) -> str | None:
    """Lengths beyond int64, which the ops take, would become other numbers."""
    for name in ("sequence_lengths", "seq_len_max"):
        try:
            longest = int(np.asarray(call.get(name), object).max())
        except _ERRORS:
            continue  # no numbers, or unknown ones
        if longest > tf.int64.max:
            return f"{name} must be in 0..T, got {longest}"
    return None


def _not_dense(arguments: Sequence[_Argument], has_lengths: bool) -> str | None:
    for name, value, _ in arguments:
        if isinstance(value, tf.SparseTensor):
            return f"{name} must be a dense tensor, got a SparseTensor; tf.sparse.to_dense makes it"
        if isinstance(value, tf.RaggedTensor):
            lengths = ", with sequence_lengths=row_lengths()" if has_lengths and name == "x" else ""
            return (
                f"{name} must be a dense tensor, got a RaggedTensor; pass its to_tensor(){lengths}"
            )
    return None


def _no_tensor(arguments: Sequence[_Argument]) -> str | None:
    for name, value, _ in arguments:
        if not tf.is_tensor(value):
            try:
                tf.convert_to_tensor(value)
            except _ERRORS:
                return f"{name} must be a tensor, {_got(value)}"
    return None


def _wrong_type(arguments: Sequence[_Argument]) -> str | None:
    """Numbers and arrays take the type of the tensors."""
    given = [a for a in arguments if a.name not in _WITH_OWN_DTYPE]
    # A variable of TensorFlow 1 has a reference type.
    types = {a.name: tf.as_dtype(a.value.dtype).base_dtype for a in given if tf.is_tensor(a.value)}
    if not types:
        types = {a.name: tf.convert_to_tensor(a.value).dtype for a in given[:1]}
    (first, expected), *others = types.items()
    if expected not in _DTYPES:
        return f"{first} must be of type {', '.join(_DTYPES.values())}, got {expected.name}"
    for name, found in others:
        if found != expected:
            return f"{name} must be of type {expected.name}, as {first} is, got {found.name}"
    for name, value, _ in given:
        if not tf.is_tensor(value):
            try:
                tf.convert_to_tensor(value, expected)
            except _ERRORS:
                return f"{name} must be a tensor of type {expected.name}, {_got(value)}"
    return None


class _Sizes(dict[str, int]):
    """The sizes that the arguments so far have determined, by letter."""

    def of(self, dim: str) -> int | None:
        """The size of a dim, None if it is not determined yet."""
        size, unknown = self._terms(dim)
        return None if unknown else size

    def fits(self, dim: str, size: int | None) -> bool:
        """Whether a size is that of the dim; if one letter is left, the size determines it."""
        known, unknown = self._terms(dim)
        if size is None or len(unknown) > 1:
            return True
        if not unknown:
            return size == known
        ((letter, factor),) = unknown
        quotient, remainder = divmod(size - known, factor)
        if remainder or quotient < 0:
            return False
        self[letter] = quotient
        return True

    def _terms(self, dim: str) -> tuple[int, list[tuple[str, int]]]:
        """The sum of the terms that are known, and the others with their factors."""
        known, unknown = 0, []
        for term in dim.split("+"):
            digits, letter = re.fullmatch(r"(\d*)([A-Z]?)", term).groups()
            factor = int(digits or 1)
            if letter and letter not in self:
                unknown.append((letter, factor))
            else:
                known += factor * self.get(letter, 1)
        return known, unknown


def _wrong_shape(arguments: Sequence[_Argument], call: Mapping[str, Any]) -> str | None:
    sizes = _Sizes()
    for name, value, dims in arguments:
        shape = _static_shape(value)
        if name == "x" and "w_x" in call and call["w_x"] is None:
            dims = [*dims[:2], _width(arguments)]
        if shape.rank is None:
            continue
        form = f"[{', '.join(dims)}]"
        if shape.rank != len(dims):
            s = "" if len(dims) == 1 else "s"
            return f"{name} must have {len(dims)} dim{s}, {form}, got shape {shape.as_list()}"
        # Sums last: of weights of shape [I+H, 4H] the columns determine H.
        pairs = sorted(zip(dims, shape.as_list(), strict=True), key=lambda pair: "+" in pair[0])
        if not all([sizes.fits(dim, size) for dim, size in pairs]):
            known = ", ".join("?" if (s := sizes.of(d)) is None else str(s) for d in dims)
            return f"{name} must have shape {form} = [{known}], got shape {shape.as_list()}"
        if name == "w_h" and "w_p" in call and call["w_p"] is None:
            p, h = sizes.get("P"), sizes.get("H")
            if None not in (p, h) and p != h:
                return f"w_p must have shape [P, H] = [{p}, {h}], or be None where P = H, got None"
    return None


def _width(arguments: Sequence[_Argument]) -> str:
    """The width of the gates, 4H, as w_h has it."""
    return next(dims[-1] for name, _, dims in arguments if name == "w_h")


def _static_shape(value: Any) -> tf.TensorShape:
    given = value if hasattr(value, "shape") else tf.convert_to_tensor(value)
    return tf.TensorShape(given.shape)
