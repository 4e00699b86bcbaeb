"""Keras' layout of a recurrent layer's weights, as NumPy arrays.

keras.py describes it. P is H except in our LSTM with a projection. Our LayerNormLSTM and
LayerNormGRU have, after the arrays of an LSTM and of a GRU with two biases, gamma and beta [G · H]
of the norm of the input GEMM, both of that of the recurrent GEMM, and, in an LSTM, gamma and beta
[H] of that of the cell state.

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

from tf_blockrnn.weights._cells import CELLS_WITH, GATES
from tf_blockrnn.weights._formats import KERAS
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights

# The variables of a cell, or its sublayers with gamma and beta, by the fields of DirectionWeights.
NAMES = {
    "w_x": ("kernel",),
    "w_h": ("recurrent_kernel",),
    "peepholes": ("wci", "wcf", "wco"),
    "w_p": ("w_p",),
}
NORMS = {"norm_x": "kernel_norm", "norm_h": "recurrent_norm", "norm_c": "state_norm"}


class Arrays(NamedTuple):
    """The weights of one direction in Keras' form."""

    kernel: np.ndarray  # [I, G · H]
    recurrent_kernel: np.ndarray  # [P, G · H]
    bias: np.ndarray | None = None  # [G · H]; or [2, G · H], of the input GEMM and the other
    peepholes: np.ndarray | None = None  # [3, H]
    w_p: np.ndarray | None = None  # [P, H]
    cudnn: bool = False  # whether the arrays were those of a CuDNNLSTM or CuDNNGRU
    norm_x: np.ndarray | None = None  # [2, G · H], gamma and beta
    norm_h: np.ndarray | None = None  # [2, G · H]
    norm_c: np.ndarray | None = None  # [2, H]


def norms_of(cell: str) -> list[str]:
    """The norms that a cell has, as fields of DirectionWeights."""
    return [name for name in NORMS if cell in CELLS_WITH[name]]


def has_two_biases(cell: str, reset_after: bool | None) -> bool:
    """Whether Keras' layer of this cell has a bias for each of its two GEMMs."""
    return bool(reset_after) or cell == "layer_norm_gru"


def _check_columns(matrix: np.ndarray, gates: int, name: str) -> None:
    if matrix.ndim != 2 or matrix.shape[1] % gates:
        raise ValueError(f"{name} must have the shape [n, {gates} * H], got {list(matrix.shape)}")


def _split(matrix: np.ndarray, cell: str, name: str) -> np.ndarray:
    """[n, G · H] as [G, n, H], in the order of RecurrentWeights."""
    _check_columns(matrix, len(GATES[cell]), name)
    return KERAS.split(cell, matrix)


def to_direction(arrays: Arrays, cell: str, reset_after: bool | None) -> DirectionWeights:
    """The DirectionWeights of arrays in Keras' form."""
    biases: Sequence[np.ndarray] = ()
    if arrays.bias is not None:
        rows = 2 if has_two_biases(cell, reset_after) or arrays.cudnn else 1
        bias = np.atleast_2d(arrays.bias)
        if len(bias) != rows or (arrays.cudnn and reset_after is False):
            of = cell if cell != "gru" else f"gru with reset_after={reset_after}"
            raise ValueError(
                f"bias of {of} must have the shape {'[2, 3 * H]' if rows == 2 else '[G * H]'}, "
                f"got {list(arrays.bias.shape)}{' of a CuDNNGRU' if arrays.cudnn else ''}"
            )
        biases = _split(bias, cell, "bias").swapaxes(0, 1)
    norms = {}
    for name in norms_of(cell):
        norm = getattr(arrays, name)
        wide = norm is not None and name != "norm_c"
        norms[name] = _split(norm, cell, NORMS[name]).swapaxes(0, 1) if wide else norm
    return DirectionWeights(
        _split(arrays.kernel, cell, "kernel"),
        _split(arrays.recurrent_kernel, cell, "recurrent_kernel"),
        *biases,
        peepholes=arrays.peepholes,
        w_p=arrays.w_p,
        **norms,
    )


def _from_cudnn_layout(
    kernel: np.ndarray, recurrent_kernel: np.ndarray, bias: np.ndarray, gates: int
) -> Arrays:
    """The weights of a CuDNNLSTM or CuDNNGRU in the layout of an LSTM or GRU."""
    units = len(recurrent_kernel)
    blocks = [block.reshape(units, len(kernel)).T for block in np.split(kernel, gates, axis=1)]
    recurrent = [block.T for block in np.split(recurrent_kernel, gates, axis=1)]
    both = bias.reshape(2, -1)
    return Arrays(np.hstack(blocks), np.hstack(recurrent), both, cudnn=True)


def _with_norms(given: Sequence[np.ndarray], gates: int, names: Sequence[str]) -> Arrays:
    """The weights of a layer with these norms."""
    units = given[0].shape[1] // gates
    count = 2 * len(names)
    wanted = ([(gates * units,)] * 4 + [(units,)] * 2)[:count]
    own, rest = given[:-count], given[-count:]
    if len(own) not in (2, 3) or [array.shape for array in rest] != wanted:
        raise ValueError(
            "expected [kernel, recurrent_kernel], then optionally bias, then gamma and beta of "
            f"{', '.join(NORMS[name] for name in names)}; got arrays of shapes "
            f"{[list(array.shape) for array in given]}"
        )
    pairs = {name: np.stack(rest[2 * n : 2 * n + 2]) for n, name in enumerate(names)}
    return Arrays(*own, **pairs)


def parse(arrays: Sequence[np.ndarray], cell: str) -> Arrays:
    """The arrays of get_weights() of one direction, identified by position and shape.

    Those of a CuDNNLSTM or CuDNNGRU are identified by their bias. Of a layer with norms the last
    arrays are gamma and beta of each.
    """
    given, gates = [np.asarray(array) for array in arrays], len(GATES[cell])
    shapes = [list(array.shape) for array in given]
    if len(given) < 2:
        raise ValueError(f"expected [kernel, recurrent_kernel, ...], got arrays of shapes {shapes}")
    _check_columns(given[0], gates, "kernel")
    units = given[0].shape[1] // gates
    if norms := norms_of(cell):
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


def to_arrays(one: DirectionWeights, weights: RecurrentWeights) -> list[np.ndarray]:
    """The arrays of get_weights() of a Keras layer with this direction of the weights."""
    cell = weights.cell
    arrays = [KERAS.join(cell, array) for array in (one.w_x, one.w_h)]
    if one.has_bias and has_two_biases(cell, weights.reset_after):
        arrays.append(np.stack([KERAS.join(cell, bias) for bias in one.biases]))
    elif one.has_bias:
        arrays.append(KERAS.join(cell, one.bias))
    arrays += [] if one.peepholes is None else [row.copy() for row in one.peepholes]
    arrays += [] if one.w_p is None else [one.w_p.copy()]
    for name in norms_of(cell):
        rows = getattr(one, name)
        arrays += [row.copy() if name == "norm_c" else KERAS.join(cell, row) for row in rows]
    return arrays
