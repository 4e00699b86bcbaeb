"""Keras' layout of a recurrent layer's weights, as NumPy arrays.

Matrices are those of x·W with the columns of all gates concatenated, `kernel` [I, G · H] and
`recurrent_kernel` [P, G · H], where P is H except in our LSTM with a projection. The gate order is
i, f, c, o (lstm) and u, r, c (gru; Keras calls them z, r, h). There is one `bias` [G · H], but two,
[2, 3H], in a gru with `reset_after`. Our LSTM can have peepholes and a projection after these.

Our LayerNormLSTM and LayerNormGRU have after these, in the gate order of the matrices, gamma and
beta [G · H] of the norm of the input GEMM, both of that of the recurrent GEMM, and, in an LSTM,
gamma and beta [H] of that of the cell state. Such a GRU has two biases.

The CuDNNLSTM and CuDNNGRU of Keras 2 have the same shapes except for the `bias` [2 · G · H], the
biases of the input GEMM and then those of the recurrent one, and the same gate orders; but each
block of columns holds the elements of cuDNN's matrix, which is that of W·x. So a block of `kernel`
[I, H] is the matrix [H, I] reshaped, and a block of `recurrent_kernel` is transposed. Source:
`_convert_rnn_weights` in tf_keras/src/saving/legacy/hdf5_format.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tf_blockrnn.weights.layer import (
    GATES,
    NORM_CELLS,
    DirectionWeights,
    RecurrentWeights,
    reorder,
)

# Keras' gate orders, with the gate names of RecurrentWeights.
_ORDERS = {**GATES, "gru": ("u", "r", "c"), "layer_norm_gru": ("u", "r", "c")}


class Arrays(NamedTuple):
    """The weights of one direction in Keras' form."""

    kernel: np.ndarray  # [I, G · H]
    recurrent_kernel: np.ndarray  # [P, G · H]
    bias: np.ndarray | None = (
        None  # [G · H]; or [2, G · H], of the input GEMM and the recurrent one
    )
    peepholes: np.ndarray | None = None  # [3, H]
    w_p: np.ndarray | None = None  # [P, H]
    cudnn: bool = False  # whether the arrays were those of a CuDNNLSTM or CuDNNGRU
    norm_x: np.ndarray | None = None  # [2, G · H], gamma and beta
    norm_h: np.ndarray | None = None  # [2, G · H]
    norm_c: np.ndarray | None = None  # [2, H]


class Form(NamedTuple):
    """The properties of a cell that its arrays do not have."""

    cell: str
    reset_after: bool | None = None
    cell_clip: float = 0.0
    zoneout_state: float = 0.0
    zoneout: float = 0.0
    epsilon: float | None = None
    norm_output_only: bool | None = None

    @property
    def norms(self) -> int:
        """The number of norms."""
        return {"layer_norm_lstm": 3, "layer_norm_gru": 2}.get(self.cell, 0)


def has_two_biases(cell: str, reset_after: bool | None) -> bool:
    """Whether Keras' layer of this cell has a bias for each of its two GEMMs."""
    return bool(reset_after) or cell == "layer_norm_gru"


def _check_columns(matrix: np.ndarray, gates: int, name: str) -> None:
    if matrix.ndim != 2 or matrix.shape[1] % gates:
        raise ValueError(f"{name} must have the shape [n, {gates} * H], got {list(matrix.shape)}")


def _split(matrix: np.ndarray, form: Form, name: str) -> np.ndarray:
    """[n, G · H] as [G, n, H], in the order of RecurrentWeights."""
    order = _ORDERS[form.cell]
    _check_columns(matrix, len(order), name)
    rows, columns = matrix.shape
    by_gate = matrix.reshape(rows, len(order), columns // len(order)).transpose(1, 0, 2)
    return reorder(by_gate, order, GATES[form.cell])


def to_direction(arrays: Arrays, form: Form) -> DirectionWeights:
    """The DirectionWeights of arrays in Keras' form."""
    biases: list[np.ndarray | None] = [None, None]
    if arrays.bias is not None:
        rows = 2 if has_two_biases(form.cell, form.reset_after) or arrays.cudnn else 1
        bias = arrays.bias.reshape(1, -1) if arrays.bias.ndim == 1 else arrays.bias
        if len(bias) != rows or (arrays.cudnn and form.reset_after is False):
            of = form.cell if form.cell != "gru" else f"gru with reset_after={form.reset_after}"
            raise ValueError(
                f"bias of {of} must have the shape {'[2, 3 * H]' if rows == 2 else '[G * H]'}, "
                f"got {list(arrays.bias.shape)}{' of a CuDNNGRU' if arrays.cudnn else ''}"
            )
        split = _split(bias, form, "bias")
        biases[:rows] = [split[:, row] for row in range(rows)]
    return DirectionWeights(
        _split(arrays.kernel, form, "kernel"),
        _split(arrays.recurrent_kernel, form, "recurrent_kernel"),
        *biases,
        peepholes=arrays.peepholes,
        w_p=arrays.w_p,
        norm_x=None if arrays.norm_x is None else _split_norm(arrays.norm_x, form, "kernel_norm"),
        norm_h=(
            None if arrays.norm_h is None else _split_norm(arrays.norm_h, form, "recurrent_norm")
        ),
        norm_c=arrays.norm_c,
    )


def _split_norm(norm: np.ndarray, form: Form, name: str) -> np.ndarray:
    """[2, G · H] as [2, G, H], in the order of RecurrentWeights."""
    return _split(norm, form, name).transpose(1, 0, 2)


def _from_cudnn_layout(
    kernel: np.ndarray, recurrent_kernel: np.ndarray, bias: np.ndarray, gates: int
) -> Arrays:
    """The weights of a CuDNNLSTM or CuDNNGRU in the layout of an LSTM or GRU."""
    units = len(recurrent_kernel)
    blocks = [block.reshape(units, len(kernel)).T for block in np.split(kernel, gates, axis=1)]
    recurrent = [block.T for block in np.split(recurrent_kernel, gates, axis=1)]
    both = bias.reshape(2, -1)
    return Arrays(np.hstack(blocks), np.hstack(recurrent), both, cudnn=True)


def _with_norms(given: Sequence[np.ndarray], gates: int, norms: int) -> Arrays:
    """The weights of a layer with this number of norms."""
    units = given[0].shape[1] // gates
    wide = [(gates * units,)] * 4 + [(units,)] * 2
    own, rest = given[: -2 * norms], given[-2 * norms :]
    if len(own) not in (2, 3) or [array.shape for array in rest] != wide[: 2 * norms]:
        names = ("kernel_norm", "recurrent_norm", "state_norm")[:norms]
        raise ValueError(
            "expected [kernel, recurrent_kernel], then optionally bias, then gamma and beta of "
            f"{', '.join(names)}; got arrays of shapes {[list(array.shape) for array in given]}"
        )
    pairs = [np.stack(rest[2 * n : 2 * n + 2]) for n in range(norms)]
    names = ("norm_x", "norm_h", "norm_c")[:norms]
    return Arrays(*own, **dict(zip(names, pairs, strict=True)))


def parse(arrays: Sequence[np.ndarray], gates: int, norms: int = 0) -> Arrays:
    """The arrays of get_weights() of one direction, identified by position and shape.

    Those of a CuDNNLSTM or CuDNNGRU are identified by their bias. Of a layer with norms the last
    arrays are gamma and beta of each.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn.weights._keras_arrays import parse
      >>> arrays = parse([np.ones([5, 8]), np.ones([2, 8]), np.ones([8])], gates=4)
      >>> arrays.bias.shape, arrays.peepholes
      ((8,), None)
    """
    given = [np.asarray(array) for array in arrays]
    shapes = [list(array.shape) for array in given]
    if len(given) < 2:
        raise ValueError(f"expected [kernel, recurrent_kernel, ...], got arrays of shapes {shapes}")
    _check_columns(given[0], gates, "kernel")
    units = given[0].shape[1] // gates
    if norms:
        return _with_norms(given, gates, norms)
    rest = given[2:]
    if gates > 1 and [array.shape for array in rest] == [(2 * gates * units,)]:
        if given[1].shape != (units, gates * units):
            raise ValueError(
                f"recurrent_kernel must have the shape {[units, gates * units]} beside kernel "
                f"{shapes[0]} and bias {shapes[2]}, got {shapes[1]}"
            )
        return _from_cudnn_layout(*given, gates)
    bias = rest.pop(0) if rest and rest[0].shape[-1:] == (gates * units,) else None
    peepholes = None
    if len(rest) >= 3 and all(array.shape == (units,) for array in rest[:3]):
        peepholes, rest = np.stack(rest[:3]), rest[3:]
    w_p = rest.pop(0) if rest and rest[0].ndim == 2 else None
    if rest:
        raise ValueError(
            "expected [kernel, recurrent_kernel], then optionally bias, wci, wcf, wco and "
            f"the projection w_p; got arrays of shapes {shapes}"
        )
    return Arrays(given[0], given[1], bias, peepholes, w_p)


def _join(by_gate: np.ndarray, cell: str) -> np.ndarray:
    """[G, ..., H] as [..., G · H], in Keras' order."""
    return np.concatenate(list(reorder(by_gate, GATES[cell], _ORDERS[cell])), axis=-1)


def _bias_of(one: DirectionWeights, weights: RecurrentWeights) -> list[np.ndarray]:
    if not one.has_bias:
        return []
    if not has_two_biases(weights.cell, weights.reset_after):
        return [_join(one.bias, weights.cell)]
    zeros = np.zeros([one.gates, one.units], one.dtype)
    return [
        np.stack(
            [_join(zeros if bias is None else bias, weights.cell) for bias in (one.b_x, one.b_h)]
        )
    ]


def to_arrays(one: DirectionWeights, weights: RecurrentWeights) -> list[np.ndarray]:
    """The arrays of get_weights() of a Keras layer with this direction of the weights."""
    arrays = [_join(one.w_x, weights.cell), _join(one.w_h, weights.cell)]
    arrays += _bias_of(one, weights)
    arrays += [] if one.peepholes is None else [row.copy() for row in one.peepholes]
    arrays += [] if one.w_p is None else [one.w_p.copy()]
    if weights.cell in NORM_CELLS:
        arrays += [_join(row, weights.cell) for norm in (one.norm_x, one.norm_h) for row in norm]
        arrays += [] if one.norm_c is None else [row.copy() for row in one.norm_c]
    return arrays
