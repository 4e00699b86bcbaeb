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
    """The fields of DirectionWeights without the biases, which are in Keras' form."""

    fields: dict[str, np.ndarray]
    bias: np.ndarray | None = None  # [G · H]; or [2, G · H], of the input GEMM and the other
    cudnn: bool = False  # whether the arrays were those of a CuDNNLSTM or CuDNNGRU


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
    return DirectionWeights(**arrays.fields, **dict(zip(("b_x", "b_h"), biases, strict=False)))


def _from_cudnn_layout(
    kernel: np.ndarray, recurrent_kernel: np.ndarray, bias: np.ndarray, gates: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights of a CuDNNLSTM or CuDNNGRU in the layout of an LSTM or GRU."""
    units = len(recurrent_kernel)
    blocks = [block.reshape(units, len(kernel)).T for block in np.split(kernel, gates, axis=1)]
    recurrent = [block.T for block in np.split(recurrent_kernel, gates, axis=1)]
    return np.hstack(blocks), np.hstack(recurrent), bias.reshape(2, -1)


def _take_norms(rest: list[np.ndarray], cell: str, units: int) -> dict[str, np.ndarray]:
    """Removes gamma and beta of each norm from the end, after a bias or nothing."""
    names, gates = norms_of(cell), len(GATES[cell])
    wanted = ([(gates * units,)] * 4 + [(units,)] * 2)[: 2 * len(names)]
    shapes = [array.shape for array in rest]
    if shapes[-len(wanted) :] != wanted or len(rest) > len(wanted) + 1:
        raise ValueError(
            "expected [kernel, recurrent_kernel], then optionally bias, then gamma and beta of "
            f"{', '.join(NORMS[name] for name in names)}; behind the kernels are arrays of shapes "
            f"{list(map(list, shapes))}"
        )
    pairs = [rest.pop() for _ in wanted][::-1]
    norms = {name: np.stack(pairs[2 * n : 2 * n + 2]) for n, name in enumerate(names)}
    return {
        name: norm if name == "norm_c" else _split(norm, cell, NORMS[name]).swapaxes(0, 1)
        for name, norm in norms.items()
    }


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
    columns, units = given[0].shape[1], given[0].shape[1] // gates
    kernel, recurrent, *rest = given
    fields = _take_norms(rest, cell, units) if norms_of(cell) else {}
    cudnn = not fields and gates > 1 and [array.shape for array in rest] == [(2 * columns,)]
    if cudnn:
        if recurrent.shape != (units, columns):
            raise ValueError(
                f"recurrent_kernel must have the shape {[units, columns]} beside kernel "
                f"{shapes[0]} and bias {shapes[2]}, got {shapes[1]}"
            )
        kernel, recurrent, *rest = _from_cudnn_layout(*given, gates)
    bias = rest.pop(0) if rest and (fields or rest[0].shape[-1:] == (columns,)) else None
    if len(rest) >= 3 and all(array.shape == (units,) for array in rest[:3]):
        fields["peepholes"], rest = np.stack(rest[:3]), rest[3:]
    if rest and rest[0].ndim == 2:
        fields["w_p"] = rest.pop(0)
    if rest:
        raise ValueError(
            "expected [kernel, recurrent_kernel], then optionally bias, wci, wcf, wco and "
            f"the projection w_p; got arrays of shapes {shapes}"
        )
    fields["w_x"] = _split(kernel, cell, "kernel")
    fields["w_h"] = _split(recurrent, cell, "recurrent_kernel")
    return Arrays(fields, bias, cudnn)


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
