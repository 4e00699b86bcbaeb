"""Zoneout of recurrent layers and cells (Krueger et al. 2016, https://arxiv.org/abs/1606.01305).

In training, units of a state keep what they were before a step, drawn anew for every step, row and
unit; otherwise the state is the mean over the draws. A cell has the rates as `zoneout_state`, of
the output h, and an LSTM's also as `zoneout`, of the cell state.
"""

from typing import Any

import keras
from keras import ops

from tf_blockrnn._ops import sequence_util

_NAMES = ("zoneout_state", "zoneout")


def rate(owner: Any, argument: str, given: float) -> float:
    """An argument of a constructor.

    Raises:
      ValueError: it is not a number in 0..1.
    """
    return sequence_util.zoneout_rate(f"{type(owner).__name__}: {argument}", given)


def config(owner: Any) -> dict[str, float]:
    """The rates of a layer or cell that are in use."""
    found = {name: getattr(owner, name, 0.0) for name in _NAMES}
    return {name: value for name, value in found.items() if value}


def options(cell: Any, training: Any, steps: list[Any]) -> dict[str, Any]:
    """The options of `tf_blockrnn.lstm` and `gru`: draws in training, else rates.

    Args:
      cell: a cell, of any class.
      training: whether to draw.
      steps: the first two dims of the draws.
    """
    widths = {"zoneout_state": cell.output_size, "zoneout": cell.units}
    names = {"zoneout_state": "zoneout_h", "zoneout": "zoneout_c"}
    return {
        names[name]: _draws(cell, name, [*steps, widths[name]]) if training else rate
        for name, rate in config(cell).items()
    }


def _draws(cell: Any, name: str, shape: list[Any]) -> Any:
    # In float32 whatever the cell computes in: half a step of float16 would move the rate.
    values = keras.random.uniform(shape, dtype="float32", seed=cell.seed_generator)
    return values < getattr(cell, name)


def step(cell: Any, name: str, before: Any, new: Any, training: Any) -> Any:
    """The state after a step in Keras' own operations."""
    share = getattr(cell, name)
    if not share:
        return new
    if training:
        return ops.where(_draws(cell, name, ops.shape(new)), before, new)
    return share * before + (1 - share) * new
