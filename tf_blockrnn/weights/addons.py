"""Weights of TensorFlow Addons' LayerNormLSTMCell, as the arrays of `get_weights()`.

They are those of `tf_blockrnn.layers.LayerNormLSTM`; docs/weights.md has a table. The bias is added
after both norms, and the next step uses the normalised cell state. Source: the
equations and arguments in the documentation of `tfa.rnn.LayerNormLSTMCell`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, wrong_source
from tf_blockrnn.weights._formats import ADDONS
from tf_blockrnn.weights.keras import from_keras, to_keras
from tf_blockrnn.weights.layer import RecurrentWeights


def from_addons(
    source: Sequence[np.ndarray] | Sequence[Sequence[np.ndarray]],
    *,
    epsilon: float = 1e-3,
    bidirectional: bool = False,
) -> RecurrentWeights:
    """Reads the weights of TensorFlow Addons' LayerNormLSTMCell, bit for bit.

    Args:
      source: the arrays of a cell, of `RNN` of one, or of `Bidirectional` of that; or a list of
        such lists, which is a stack.
      epsilon: the cell's `norm_epsilon`, which is not among the arrays.
      bidirectional: whether each list has the forward arrays, then the backward ones.

    Returns:
      The weights, with norm_output_only=False. The bias is b_x, and b_h is None.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> shapes = [(3, 8), (2, 8), (8,), *[(8,)] * 4, *[(2,)] * 2]
      >>> lstm = weights.from_addons([np.ones(shape) for shape in shapes])
      >>> lstm.epsilon, lstm.layers[0].forward.norm_x.shape
      (0.001, (2, 4, 2))
    """
    if not isinstance(source, (list, tuple)) or not source:
        raise wrong_source("from_addons", "a list of arrays that is not empty", source)
    return from_keras(
        source,
        cell="layer_norm_lstm",
        bidirectional=bidirectional,
        epsilon=epsilon,
        norm_output_only=False,
    )


def to_addons(weights: RecurrentWeights) -> list[list[np.ndarray]]:
    """Writes weights as the arrays that `set_weights` of TensorFlow Addons' cell takes.

    The cell needs `norm_epsilon=weights.epsilon`, which is not among the arrays. It has one bias:
    if there are two they become their sum, rounded to the weights' type.

    Args:
      weights: of the cell "layer_norm_lstm", with norm_output_only=False.

    Returns:
      For each layer its arrays; with two directions the forward ones come first.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> shapes = [(3, 8), (2, 8), (8,), *[(8,)] * 4, *[(2,)] * 2]
      >>> arrays = [np.ones(shape) for shape in shapes]
      >>> [again] = weights.to_addons(weights.from_addons(arrays))
      >>> all(map(np.array_equal, arrays, again))
      True
    """
    ADDONS.require(weights)
    if weights.norm_output_only:
        raise UnsupportedError(
            "TensorFlow Addons' LayerNormLSTMCell passes the normalised cell state on to the next "
            "step; these weights have norm_output_only=True, with which the output alone reads it"
        )
    return to_keras(weights, package="tf_blockrnn")
