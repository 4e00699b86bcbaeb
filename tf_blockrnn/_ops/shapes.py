"""Which argument of a call has a shape that does not fit the others.

An op compares its inputs in order, so it names the first that does not fit those before it, and
derives the shape that it asks for from these. Where an earlier one is wrong, that shape is wrong
too. Here the sizes are solved from all arguments but a few, and the fewest are blamed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

# B rows, T steps, I inputs, H units, P outputs (H without a projection); by argument.
Patterns = Mapping[str, str]
Shape = Sequence[int | None] | None

_MOST_BLAMED = 3


def _each(argument: str, count: int, shape: str) -> dict[str, str]:
    return {f"{argument}[{k}]": shape for k in range(count)}


def _sequence(gates: int, outputs: str, others: Patterns) -> Patterns:
    wide = f"{gates}H" if gates > 1 else "H"
    steps = {"mask": "B, T", "resets": "B, T", "lengths": "B"}
    steps["recurrent_dropout_factors"] = f"{gates}, B, {outputs}"
    weights = {"w_x": f"I, {wide}", "w_h": f"{outputs}, {wide}"}
    return {"x": "B, T, I", **weights, **others, **steps}


_LSTM_STATE = {"initial_state[0]": "B, P", "initial_state[1]": "B, H"}
_STATE = {"initial_state": "B, H"}
_GRU_BIASES = {"b_x": "3H", "b_h": "3H"}
_BLOCK_LSTM = {"x": "T, B, I", "w": "I+H, 4H", "b": "4H", **_each("peepholes", 3, "H")}
_BLOCK_GRU = {"x": "T, B, I", "w_ru": "I+H, 2H", "w_c": "I+H, H", "b_ru": "2H", "b_c": "H"}
_BLOCK_LSTM_STATE = _each("initial_state", 2, "B, H")


def _norms(gates: int) -> Patterns:
    both = ("kernel_norm", "recurrent_norm")
    return {key: s for norm in both for key, s in _each(norm, 2, f"{gates}H").items()}


_PATTERNS: Mapping[str, Patterns] = {
    "lstm": _sequence(
        4,
        "P",
        {
            **{"b": "4H", "w_p": "P, H", "zoneout_h": "B, T, P", "zoneout_c": "B, T, H"},
            **_LSTM_STATE,
            **_each("peepholes", 3, "H"),
        },
    ),
    "gru": _sequence(3, "H", {**_GRU_BIASES, **_STATE, "zoneout_h": "B, T, H"}),
    "simple_rnn": _sequence(1, "H", {"b": "H", **_STATE}),
    "layer_norm_lstm": _sequence(
        4, "H", {"b": "4H", **_norms(4), **_each("state_norm", 2, "H"), **_BLOCK_LSTM_STATE}
    ),
    "layer_norm_gru": _sequence(3, "H", {**_GRU_BIASES, **_norms(3), **_STATE}),
    "block_lstm": {**_BLOCK_LSTM, **_BLOCK_LSTM_STATE},
    "block_lstm_v2": {**_BLOCK_LSTM, **_BLOCK_LSTM_STATE},
    "block_gru": {**_BLOCK_GRU, **_STATE},
    "lstm_block_cell": {**_BLOCK_LSTM, "x": "B, I", **_each("state", 2, "B, H")},
    "gru_block_cell": {**_BLOCK_GRU, "x": "B, I", "state": "B, H"},
}


class Wrong(NamedTuple):
    """An argument and the shape that fits the others: as symbols and as sizes, None if unknown."""

    name: str
    symbols: str
    sizes: tuple[int | None, ...]
    is_transposed: bool


def patterns_of(
    function: str, *, time_major: bool = False, left_out: Iterable[str] = ()
) -> Patterns:
    """The shapes of a function's arguments; `left_out` are those that are None."""
    found = dict(_PATTERNS[function])
    if "w_x" in left_out:
        found["x"] = found["x"].replace("I", found["w_x"].partition(", ")[2])
    if time_major:
        found = {name: pattern.replace("B, T", "T, B") for name, pattern in found.items()}
    return found


def wrong(shapes: Mapping[str, Shape], patterns: Patterns, blamed: str | None) -> Wrong | None:
    """The argument to blame; None if the shapes fit each other.

    Args:
      shapes: those of the arguments given, None for an unknown rank.
      patterns: from patterns_of.
      blamed: the argument that was blamed in order. Where others would do as well, it is chosen.
    """
    dims = {name: _parsed(patterns[name], projected="w_p" in shapes) for name in shapes}
    for cost in range(_MOST_BLAMED + 1):
        found = []
        for names in _subsets(list(shapes), cost):
            rest = {name: shape for name, shape in shapes.items() if name not in names}
            bound = _solved(rest, dims)
            if bound is not None:
                found.append([_expected(n, shapes[n], patterns[n], dims[n], bound) for n in names])
        if found:
            best = min(found, key=lambda parts: _rank(parts, blamed))
            return min(best, key=lambda part: part.name != blamed) if best else None
    return None


def _rank(parts: Sequence[Wrong], blamed: str | None) -> tuple[bool, bool]:
    transposed = bool(parts) and all(part.is_transposed for part in parts)
    return not transposed, blamed not in [part.name for part in parts]


def _subsets(names: Sequence[str], cost: int) -> Iterator[tuple[str, ...]]:
    """Of arguments that may be wrong. x costs two: it is the data, and brings B, T and I along."""
    others = [name for name in names if name != "x"]
    yield from itertools.combinations(others, cost)
    if "x" in names and cost > 1:
        yield from (("x", *rest) for rest in itertools.combinations(others, cost - 2))


def _parsed(pattern: str, *, projected: bool) -> list[dict[str, int]]:
    """For each dim the coefficients of its symbols; a number is that of the symbol ""."""
    pattern = pattern if projected else pattern.replace("P", "H")
    terms = re.compile(r"(\d*)([A-Z]?)")
    return [
        {
            symbol: int(count or 1)
            for count, symbol in (terms.match(t).groups() for t in dim.split("+"))
        }
        for dim in pattern.split(", ")
    ]


def _solved(
    shapes: Mapping[str, Shape], dims: Mapping[str, list[dict[str, int]]]
) -> dict[str, int] | None:
    """The sizes of the symbols that these shapes determine; None if they contradict each other."""
    bound, before = {"": 1}, -1
    while len(bound) > before:
        before = len(bound)
        for name, shape in shapes.items():
            if shape is None:
                continue
            if len(shape) != len(dims[name]):
                return None
            for size, terms in zip(shape, dims[name], strict=True):
                if size is not None and not _bind(size, terms, bound):
                    return None
    return bound


def _bind(size: int, terms: Mapping[str, int], bound: dict[str, int]) -> bool:
    """Whether a dim can have that size; binds its symbol if only one is unknown."""
    unknown = [symbol for symbol in terms if symbol not in bound]
    rest = size - sum(count * bound[s] for s, count in terms.items() if s in bound)
    if not unknown:
        return rest == 0
    if len(unknown) == 1:
        value, left = divmod(rest, terms[unknown[0]])
        if left or value < 0:
            return False
        bound[unknown[0]] = value
    return rest >= 0


def _expected(
    name: str, shape: Shape, pattern: str, dims: list[dict[str, int]], bound: Mapping[str, int]
) -> Wrong:
    sizes = tuple(
        sum(count * bound[symbol] for symbol, count in terms.items())
        if all(symbol in bound for symbol in terms)
        else None
        for terms in dims
    )
    is_transposed = len(sizes) == 2 and list(sizes[::-1]) == list(shape or ())
    return Wrong(name, f"[{pattern}]", sizes, is_transposed)
