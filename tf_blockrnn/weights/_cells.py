"""The cells as tables: their gates, and the options and arrays that only some of them have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# The gate orders of all arrays in this package's descriptions of weights.
GATES = {
    "lstm": ("i", "f", "c", "o"),
    "gru": ("r", "u", "c"),
    "rnn_tanh": ("h",),
    "rnn_relu": ("h",),
    "layer_norm_lstm": ("i", "f", "c", "o"),
    "layer_norm_gru": ("r", "u", "c"),
}
# The cells with layer normalisation, which few frameworks have, and the others.
NORM_CELLS = ("layer_norm_lstm", "layer_norm_gru")
PLAIN_CELLS = tuple(cell for cell in GATES if cell not in NORM_CELLS)

# The cells that have an array which others do not have. Those with norms need all of them.
CELLS_WITH = {
    "peepholes": ("lstm",),
    "w_p": ("lstm",),
    "norm_x": NORM_CELLS,
    "norm_h": NORM_CELLS,
    "norm_c": ("layer_norm_lstm",),
    "c0": ("lstm", "layer_norm_lstm"),
}


class Option(NamedTuple):
    """An argument of RecurrentWeights that only some cells have; without a default they need it."""

    cells: tuple[str, ...]
    default: float | str | None
    kind: type
    expected: str
    is_valid: Callable[[Any], bool] = lambda value: True
    normal: Callable[[Any], Any] = lambda value: value  # the form in which a value is stored


def _is_rate(value: float) -> bool:
    return 0 <= value <= 1


# Others are no numbers of float32, in which sessions compute, or near the end of its range: a bound
# of 1e-46 would be none at all.
def _is_in_range(value: float) -> bool:
    return 1e-30 <= value <= 1e30


def _is_none_or_in_range(value: float) -> bool:
    return value == 0 or _is_in_range(value)


def _is_bound(value: float) -> bool:
    return value == 0 or value >= 1e-30


def _bound(value: float) -> float:
    """0, none, for what is no number of float32."""
    return value if value <= _MOST_FLOAT32 else 0.0


_MOST_FLOAT32 = float(np.finfo(np.float32).max)

# Comparisons with a NaN are false, so it is refused.
OPTIONS = {
    "reset_after": Option(("gru",), None, bool, "True or False"),
    "cell_clip": Option(
        ("lstm",), 0.0, float, "0 for none or a bound of 1e-30 or more", _is_bound, _bound
    ),
    "zoneout_h": Option(("lstm", "gru"), 0.0, float, "a rate in 0..1", _is_rate),
    "zoneout_c": Option(("lstm",), 0.0, float, "a rate in 0..1", _is_rate),
    "epsilon": Option(NORM_CELLS, None, float, "a number in 1e-30..1e30", _is_in_range),
    "norm_output_only": Option(("layer_norm_lstm",), None, bool, "True or False"),
    "activation": Option(
        ("lstm", "gru"), "tanh", str, "tanh or relu", lambda name: name in ("tanh", "relu")
    ),
    "hard_sigmoid": Option(
        ("lstm", "gru"),
        0.0,
        float,
        "0 for sigmoid or a slope in 1e-30..1e30",
        _is_none_or_in_range,
    ),
}


def require_cell(name: str, cells: tuple[str, ...], cell: str) -> None:
    """Refuses an option or array of other cells."""
    if cell not in cells:
        raise ValueError(f"{name} is for {' and '.join(cells)}, not for {cell}")


def check_option(name: str, value: Any, cell: str) -> Any:
    """The value of an option, of its type; refuses one out of its range, or for other cells."""
    cells, default, kind, expected, is_valid, normal = OPTIONS[name]
    if value is None and default is None:
        if cell in cells:
            raise ValueError(f"a {cell} needs {name}, {expected}")
        return None
    # bool() and float() accept a string too, and str() anything, which is a mistake.
    fits = isinstance(value, str) if kind is str else hasattr(value, f"__{kind.__name__}__")
    if value is None or not fits:
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    value = kind(value)
    if not is_valid(value):
        raise ValueError(f"{name} must be {expected}, got {value}")
    value = normal(value)
    if value != default:
        require_cell(name, cells, cell)
    return value
