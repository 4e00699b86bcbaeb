"""The variables of TensorFlow 1's cells for given weights, and their scopes."""

from __future__ import annotations

import numpy as np

from tf_blockrnn.weights import _tf1_checkpoint as tf1
from tf_blockrnn.weights._stack import refuse_norms, require_plain_stack
from tf_blockrnn.weights._tf1_checkpoint import Cell
from tf_blockrnn.weights.layer import (
    GATES,
    DirectionWeights,
    RecurrentWeights,
    UnsupportedError,
    reorder,
)


def refuse(weights: RecurrentWeights, name: str, cell: Cell) -> None:
    """Refuses weights that such cells cannot have."""
    refuse_norms(weights, "TensorFlow 1")
    if weights.cell != cell.cell:
        raise UnsupportedError(
            f"{name} has the cell {cell.cell}, the weights are of {weights.cell}"
        )
    if cell.cudnn:
        require_plain_stack(weights, name)
    if weights.reset_after and not cell.cudnn:
        raise UnsupportedError(
            f"{name} resets before the GEMM with w_h; these weights reset after it "
            "(reset_after=True), which computes another candidate from the same numbers"
        )
    if weights.cell_clip and not cell.cell_clip:
        raise UnsupportedError(f"{name} has no cell_clip, here it is {weights.cell_clip:g}")
    weights.require_no_zoneout(name)
    if weights.directions is None:
        raise UnsupportedError(
            "TensorFlow 1 has names for layers all in one direction or all in both, here they are "
            "mixed"
        )
    if name == "LSTMBlockFusedCell" and (weights.num_layers, weights.directions) != (1, 1):
        raise UnsupportedError(
            f"{name} is one layer of one direction, here are {weights.num_layers} of "
            f"{weights.directions}"
        )
    for number, direction_name, direction in weights.named_directions():
        if direction.peepholes is not None and not cell.peepholes:
            raise UnsupportedError(f"{name} has no peepholes, layer {number}, {direction_name} has")
        if direction.w_p is not None and not cell.projection:
            raise UnsupportedError(
                f"{name} has no projection, layer {number}, {direction_name} has"
            )


def scope_of(weights: RecurrentWeights, name: str, number: int, direction_name: str) -> str:
    """The scope in which TensorFlow's own functions create a cell of such a network.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> from tf_blockrnn.weights._tf1_variables import scope_of
      >>> one = weights.DirectionWeights(np.ones([4, 5, 3]), np.ones([4, 3, 3]))
      >>> lstm = weights.RecurrentWeights("lstm", [weights.LayerWeights(one, one)])
      >>> scope_of(lstm, "LSTMCell", 0, "backward")
      'bidirectional_rnn/bw/lstm_cell'
    """
    cell = tf1.CELLS[name]
    if name == "LSTMBlockFusedCell":
        return cell.scope
    several = weights.num_layers > 1 or cell.cudnn  # cuDNN layers number a single layer too
    if weights.directions == 1:
        return f"rnn/multi_rnn_cell/cell_{number}/{cell.scope}" if several else f"rnn/{cell.scope}"
    both = f"bidirectional_rnn/{'fw' if direction_name == 'forward' else 'bw'}/{cell.scope}"
    return f"stack_bidirectional_rnn/cell_{number}/{both}" if several else both


def _columns(array: np.ndarray, order: tuple[str, ...], gates: tuple[str, ...]) -> np.ndarray:
    """[G, n, H] as [n, G·H], or [G, H] as [G·H], in the gate order `order`."""
    return np.concatenate(list(reorder(array, gates, order)), axis=-1)


def joined_variables(direction: DirectionWeights, cell: Cell, forget_bias: float) -> dict:
    """The arrays, by their names below the scope, of a cell with one kernel."""
    order, gates = tf1.ORDERS[cell.cell], GATES[cell.cell]
    kernel, bias = _rows(direction), _bias(direction)
    if cell.cell == "lstm":
        bias[gates.index("f")] -= forget_bias
    arrays = {"kernel": _columns(kernel, order, gates), "bias": _columns(bias, order, gates)}
    if direction.peepholes is not None:
        arrays |= zip(tf1.PEEPHOLES, direction.peepholes, strict=True)
    arrays[tf1.PROJECTION] = None if direction.w_p is None else direction.w_p.T
    return arrays


def _rows(direction: DirectionWeights) -> np.ndarray:
    """The rows of the input, then those of the state, [G, I+P, H]."""
    return np.concatenate([direction.w_x, direction.w_h], axis=1)


def _bias(direction: DirectionWeights) -> np.ndarray:
    """The sum of the biases, [G, H]; writable."""
    if direction.bias is None:
        return np.zeros([direction.gates, direction.units], direction.dtype)
    return np.array(direction.bias)


def gru_variables(direction: DirectionWeights, cell: Cell, swapped: bool) -> dict:
    """The same for a GRU, which has variables for the gates and for the candidate."""
    kernel, bias = _rows(direction), _bias(direction)
    w_ru, b_ru = np.concatenate(list(kernel[:2]), axis=-1), bias[:2].reshape(-1)
    if cell.form == "gru_block":
        w_ru, w_c = (kernel[2], w_ru) if swapped else (w_ru, kernel[2])
        return {"w_ru": w_ru, "b_ru": b_ru, "w_c": w_c, "b_c": bias[2]}
    arrays = {"gates/kernel": w_ru, "gates/bias": b_ru}
    if cell.form == "gru":
        return arrays | {"candidate/kernel": kernel[2], "candidate/bias": bias[2]}
    zeros = np.zeros_like(bias)
    b_x, b_h = (zeros if b is None else b for b in (direction.b_x, direction.b_h))
    return arrays | {
        f"{tf1.INPUT}kernel": direction.w_x[2],
        f"{tf1.INPUT}bias": b_x[2],
        f"{tf1.HIDDEN}kernel": direction.w_h[2],
        f"{tf1.HIDDEN}bias": b_h[2],
    }
