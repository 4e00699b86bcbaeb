"""Zoneout of recurrent layers and cells (Krueger et al. 2016, https://arxiv.org/abs/1606.01305).

In training, randomly drawn units of a state keep their previous value, drawn for every step, row
and unit; at inference the state is the mean over the draws. A cell has the rates as `zoneout_h`, of
the output h, and an LSTM's also as `zoneout_c`, of the cell state.
"""

from typing import Any

import keras
from keras import ops

from tf_blockrnn._ops import sequence_util
from tf_blockrnn.layers import _fusing


def rate(owner: Any, argument: str, given: float) -> float:
    """An argument of a constructor.

    Raises:
      TypeError: it is not a number.
      ValueError: it is not in 0..1.
    """
    return sequence_util.zoneout_rate(f"{type(owner).__name__}: {argument}", given)


def in_use(owner: Any, **given: float) -> dict[str, float]:
    """Those of a constructor's rates that are not 0; raises as `rate` does."""
    checked = {name: rate(owner, name, value) for name, value in given.items()}
    return {name: value for name, value in checked.items() if value}


def rates(cell: Any) -> dict[str, float]:
    """The rates in use of a layer or cell of any class."""
    found = _fusing.own_config(cell)
    return {name: found[name] for name in ("zoneout_h", "zoneout_c") if name in found}


def draws_or_rates(cell: Any, training: Any, steps: list[Any]) -> dict[str, Any]:
    """What the op takes for each rate in use: draws in training, else the rate.

    Args:
      cell: a cell, of any class.
      training: whether to draw.
      steps: the first two dims of the draws.
    """
    found = rates(cell)
    if not training:
        return found
    widths = {"zoneout_h": cell.output_size, "zoneout_c": cell.units}
    return {name: _draws(cell, name, [*steps, widths[name]]) for name in found}


def _draws(cell: Any, name: str, shape: list[Any]) -> Any:
    # In float32 for all types of cells: the spacing of float16 numbers would shift the rate.
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
