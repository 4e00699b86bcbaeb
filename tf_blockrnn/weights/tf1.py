"""Checkpoints of TensorFlow 1's cells: tf.nn.rnn_cell, tf.contrib.rnn and tf.contrib.cudnn_rnn.

A cell multiplies [x, h'] by one matrix: the rows of the input come first, then those of the state.
Below the scope of a cell a checkpoint has

    BasicRNNCell, CudnnRNNTanh, CudnnRNNRelu
        kernel [I+H, H], bias [H]
    BasicLSTMCell, LSTMCell, LSTMBlockCell, LSTMBlockFusedCell, CudnnLSTM; gates i, c, f, o
        kernel [I+P, 4H], bias [4H]; with peepholes w_i_diag, w_f_diag, w_o_diag [H]; with a
        projection projection/kernel [H, P]
    GRUCell, GRUBlockCellV2; gates r, u; reset before the GEMM
        gates/kernel [I+H, 2H], gates/bias [2H], candidate/kernel [I+H, H], candidate/bias [H]
    GRUBlockCell, the same cell
        w_ru [I+H, 2H], b_ru [2H], w_c [I+H, H], b_c [H]; releases in the middle of TensorFlow 1
        have the names of the two matrices swapped, and only the shapes tell them apart
    CudnnGRU; gates r, u; reset after the GEMM
        gates/kernel [I+H, 2H], gates/bias [2H], and below candidate/input_projection and
        candidate/hidden_projection a kernel [I, H] or [H, H] and a bias [H]

The first releases use the names weights and biases for kernel and bias. The forget bias, by default
1, and the clip are arguments of the cell that no checkpoint has. The Cudnn layers save the
variables of their CudnnCompatible cells: cuDNN's two biases as their sum, except the candidate's of
a GRU; early releases save the two in addition, as bias_cudnn_0 and bias_cudnn_1.

Source: the cells' code in the releases of TensorFlow 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tf_blockrnn.weights import _tf1_checkpoint as tf1
from tf_blockrnn.weights._cells import GATES
from tf_blockrnn.weights._checks import one_of
from tf_blockrnn.weights._formats import Format
from tf_blockrnn.weights._tf1_checkpoint import Cell, Checkpoint, Sizes
from tf_blockrnn.weights.layer import (
    DirectionWeights,
    LayerWeights,
    RecurrentWeights,
    UnsupportedError,
)

_LAYOUT = Format("TensorFlow 1", orders={"lstm": "icfo"})


class TF1Cell(NamedTuple):
    """A cell in a checkpoint, as `list_tf1` returns it.

    Args:
      scope: the name of the variables up to the cell: a value of `scope` for `from_tf1`.
      cells: the values of `cell` for `from_tf1` that its name and variables match.
      input_size: I.
      units: H.

    Example:
      >>> from tf_blockrnn.weights import TF1Cell
      >>> cell = TF1Cell("rnn/lstm_cell", ("LSTMCell", "LSTMBlockCell"), input_size=3, units=4)
      >>> cell.cells[0]
      'LSTMCell'
    """

    scope: str
    cells: tuple[str, ...]
    input_size: int
    units: int


def list_tf1(checkpoint: Any) -> tuple[TF1Cell, ...]:
    """Lists the cells in a checkpoint of TensorFlow 1.

    Args:
      checkpoint: its path, without ".index", or the result of `tf.train.load_checkpoint`.

    Returns:
      A TF1Cell(scope, cells, input_size, units) for each scope whose name and variables are those
      of a cell; with more than one of `cells` if several cells save the same variables.

    Raises:
      TypeError: checkpoint is neither.
      tf.errors.NotFoundError or ValueError: there is no such checkpoint (raised by TensorFlow).

    Example:
      >>> import os, tempfile, tensorflow as tf
      >>> from tf_blockrnn.weights.tf1 import list_tf1
      >>> path = os.path.join(tempfile.mkdtemp(), "model")
      >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      ...     for name, shape in {"kernel": [5, 12], "bias": [12]}.items():
      ...         _ = tf.compat.v1.get_variable(f"rnn/basic_lstm_cell/{name}", shape)
      ...     _ = session.run(tf.compat.v1.global_variables_initializer())
      ...     _ = tf.compat.v1.train.Saver().save(session, path)
      >>> list_tf1(path)
      (TF1Cell(scope='rnn/basic_lstm_cell', cells=('BasicLSTMCell',), input_size=2, units=3),)
    """
    read = Checkpoint(checkpoint)
    found: dict[str, list[str]] = {}
    for name, cell in tf1.CELLS.items():
        for scope in tf1.fitting(read, "", cell):
            found.setdefault(scope, []).append(name)
    listed = []
    for scope, names in sorted(found.items()):
        sizes = tf1.sizes_of(read, scope, tf1.CELLS[names[0]])
        listed.append(TF1Cell(scope, tuple(names), sizes.inputs, sizes.units))
    return tuple(listed)


# ---- from TensorFlow 1


def _read_joined(
    checkpoint: Checkpoint, scope: str, cell: Cell, sizes: Sizes, forget_bias: float
) -> DirectionWeights:
    kernel = _LAYOUT.split(cell.cell, checkpoint.read(tf1.join(scope, "kernel")))
    b_x, b_h = (checkpoint.read_if_there(tf1.join(scope, f"bias_cudnn_{n}")) for n in (0, 1))
    if b_x is None or b_h is None:
        b_x, b_h = checkpoint.read(tf1.join(scope, "bias")), None
    b_x = _LAYOUT.split(cell.cell, b_x)
    if cell.cell == "lstm":
        b_x[GATES["lstm"].index("f")] += forget_bias
    projection = checkpoint.read_if_there(tf1.join(scope, tf1.PROJECTION))
    rows = [checkpoint.read_if_there(tf1.join(scope, leaf)) for leaf in tf1.PEEPHOLES]
    missing = [leaf for leaf, row in zip(tf1.PEEPHOLES, rows, strict=True) if row is None]
    if 0 < len(missing) < len(rows):
        raise ValueError(f"{scope} has peepholes, but no {' and '.join(missing)}")
    return DirectionWeights(
        w_x=kernel[:, : sizes.inputs],
        w_h=kernel[:, sizes.inputs :],
        b_x=b_x,
        b_h=None if b_h is None else _LAYOUT.split(cell.cell, b_h),
        peepholes=None if missing else np.stack(rows),
        w_p=None if projection is None else projection.T,
    )


def _read_gru(checkpoint: Checkpoint, scope: str, cell: Cell, sizes: Sizes) -> DirectionWeights:
    kernels, biases = ("candidate/kernel", "gates/kernel"), ("gates/bias", "candidate/bias")
    if cell.form == "gru_block":
        kernels, biases = ("w_c", "w_ru"), ("b_ru", "b_c")
    # Only the widths tell the two matrices of a GRUBlockCell apart.
    w_c, w_ru = sorted(
        (checkpoint.read(tf1.join(scope, name)) for name in kernels), key=lambda w: w.shape[1]
    )
    b_ru, b_c = (checkpoint.read(tf1.join(scope, name)) for name in biases)
    kernel = np.stack([*np.split(w_ru, 2, axis=1), w_c])
    return DirectionWeights(
        w_x=kernel[:, : sizes.inputs],
        w_h=kernel[:, sizes.inputs :],
        b_x=np.stack([*np.split(b_ru, 2), b_c]),
    )


def _read_gru_cudnn(checkpoint: Checkpoint, scope: str, sizes: Sizes) -> DirectionWeights:
    kernel = checkpoint.read(tf1.join(scope, "gates/kernel"))
    both = checkpoint.read(tf1.join(scope, "gates/bias"))
    # Early releases have a space in these two names.
    ru_x, ru_h = (checkpoint.read_if_there(tf1.join(scope, f"bias_cudnn {n}")) for n in (0, 1))
    if ru_x is None or ru_h is None:
        ru_x, ru_h = both, np.zeros_like(both)

    def with_candidate(gates: np.ndarray, candidate: str) -> np.ndarray:
        return np.stack([*np.split(gates, 2, axis=-1), checkpoint.read(tf1.join(scope, candidate))])

    return DirectionWeights(
        w_x=with_candidate(kernel[: sizes.inputs], f"{tf1.INPUT}kernel"),
        w_h=with_candidate(kernel[sizes.inputs :], f"{tf1.HIDDEN}kernel"),
        b_x=with_candidate(ru_x, f"{tf1.INPUT}bias"),
        b_h=with_candidate(ru_h, f"{tf1.HIDDEN}bias"),
    )


def _forget_bias_of(name: str, given: float | None) -> float:
    cell = tf1.CELLS[one_of("cell", name, tf1.CELLS)]
    if given is not None and cell.cell != "lstm":
        raise ValueError(f"forget_bias is for LSTM cells, {name} has no forget gate")
    return cell.forget_bias if given is None else float(given)


def _not_found_error(checkpoint: Checkpoint, scope: str, name: str) -> ValueError:
    if any(".ATTRIBUTES" in known for known in checkpoint.shapes):
        return ValueError(
            "this is an object-based checkpoint, as TensorFlow 2 saves: restore it into its model "
            "and use from_keras"
        )
    where = f"below the scope {scope!r}" if scope else "in this checkpoint"
    held = [f"{c.scope} ({' or '.join(c.cells)})" for c in list_tf1(checkpoint.reader)]
    if held:
        hint = "it holds " + ", ".join(held)
    else:
        names = sorted(checkpoint.shapes)
        hint = "it holds " + ", ".join(names[:8]) + (" and more" if len(names) > 8 else "")
    return ValueError(
        f"there is no {name} {where}; {hint}. A cell with a custom name needs its complete scope"
    )


def from_tf1(
    checkpoint: Any,
    *,
    cell: str,
    scope: str = "",
    forget_bias: float | None = None,
    cell_clip: float = 0.0,
) -> RecurrentWeights:
    """Reads the weights of TensorFlow 1's cells from a checkpoint.

    Layers are found by the names of MultiRNNCell (cell_0, cell_1), directions by those of the
    bidirectional functions (fw, bw). The matrices and the peepholes are exact, bit for bit; adding
    the forget bias may round.

    Args:
      checkpoint: its path, without ".index", or the result of `tf.train.load_checkpoint`.
      cell: "BasicRNNCell", "GRUCell", "GRUBlockCell", "GRUBlockCellV2", "BasicLSTMCell",
        "LSTMCell", "LSTMBlockCell", "LSTMBlockFusedCell", "CudnnLSTM", "CudnnGRU", "CudnnRNNTanh"
        or "CudnnRNNRelu". The CudnnCompatible cells save the same variables as the Cudnn layers.
      scope: that of a cell, such as "rnn/lstm_cell", or one above it that has one network of such
        cells below it. Cells below a scope are found by TensorFlow's names for them; one with a
        custom name needs its complete scope. A scope that contains other variables, or has the
        name of another kind of cell, is refused.
      forget_bias: the argument of the LSTM cells; None is TensorFlow's default, 1, and 0 for
        CudnnLSTM. It is added to the bias.
      cell_clip: the argument of the cells, 0 for none; only for LSTMCell and the LSTM block cells.
        The block cells of early releases always clipped at 3.

    Returns:
      The weights. b_h is None except for CudnnGRU, and for CudnnLSTM if both biases were saved.

    Raises:
      ValueError: there is no such cell, or more than one network of them; cell has another value;
        an argument is not for this cell.
      UnsupportedError: each direction is a stack of its own, or the scope has the name of another
        kind of cell.
      TypeError: checkpoint is neither a path nor a reader.
      tf.errors.NotFoundError: there is no such checkpoint (raised by TensorFlow).

    Example:
      >>> import os, tempfile, tensorflow as tf
      >>> from tf_blockrnn import weights
      >>> path = os.path.join(tempfile.mkdtemp(), "model")
      >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      ...     for name, shape in {"kernel": [5, 12], "bias": [12]}.items():
      ...         _ = tf.compat.v1.get_variable(
      ...             f"rnn/basic_lstm_cell/{name}", shape, initializer=tf.zeros_initializer())
      ...     _ = session.run(tf.compat.v1.global_variables_initializer())
      ...     _ = tf.compat.v1.train.Saver().save(session, path)
      >>> lstm = weights.from_tf1(path, cell="BasicLSTMCell")
      >>> lstm.layers[0].forward.b_x[1].tolist()
      [1.0, 1.0, 1.0]
    """
    added = _forget_bias_of(cell, forget_bias)
    known = tf1.CELLS[cell]
    if cell_clip and "cell_clip" not in known.has:
        raise ValueError(f"cell_clip is for LSTMCell and the LSTM block cells, not for {cell}")
    read = Checkpoint(checkpoint)
    scope = scope.strip("/")
    scopes = tf1.candidates(read, scope, known)
    if not scopes:
        raise _not_found_error(read, scope, cell)
    # The scope of a cell itself selects that cell, whatever its position in a network.
    stack = [scopes] if scopes == [scope] else tf1.layers_of(scopes, cell)

    def direction(own: str) -> DirectionWeights:
        sizes = tf1.sizes_of(read, own, known)
        if known.form == "joined":
            return _read_joined(read, own, known, sizes, added)
        if known.form == "gru_cudnn":
            return _read_gru_cudnn(read, own, sizes)
        return _read_gru(read, own, known, sizes)

    layers = [LayerWeights(*map(direction, layer)) for layer in stack]
    reset_after = known.form == "gru_cudnn" if known.cell == "gru" else None
    return RecurrentWeights(known.cell, layers, reset_after, cell_clip)


# ---- to TensorFlow 1


def _require(weights: RecurrentWeights, name: str, cell: Cell) -> None:
    """Refuses weights that such cells cannot have."""
    uniform = "sizes" if cell.cudnn else "directions"
    Format(name, (cell.cell,), has=cell.has, reset_after=cell.cudnn, uniform=uniform).require(
        weights
    )
    if name == "LSTMBlockFusedCell" and (weights.num_layers, weights.directions) != (1, 1):
        raise UnsupportedError(
            f"{name} is one layer of one direction, here are {weights.num_layers} of "
            f"{weights.directions}"
        )


def _scope_of(weights: RecurrentWeights, name: str, number: int, direction_name: str) -> str:
    """The scope in which TensorFlow's own functions create a cell of such a network."""
    cell = tf1.CELLS[name]
    if name == "LSTMBlockFusedCell":
        return cell.scope
    several = weights.num_layers > 1 or cell.cudnn  # cuDNN layers number a single layer too
    if weights.directions == 1:
        return f"rnn/multi_rnn_cell/cell_{number}/{cell.scope}" if several else f"rnn/{cell.scope}"
    both = f"bidirectional_rnn/{'fw' if direction_name == 'forward' else 'bw'}/{cell.scope}"
    return f"stack_bidirectional_rnn/cell_{number}/{both}" if several else both


def _joined_variables(direction: DirectionWeights, cell: Cell, forget_bias: float) -> dict:
    """The arrays, by their names below the scope, of a cell with one kernel."""
    kernel, bias = _rows(direction), _bias(direction)
    if cell.cell == "lstm":
        bias[GATES["lstm"].index("f")] -= forget_bias
    arrays = {"kernel": _LAYOUT.join(cell.cell, kernel), "bias": _LAYOUT.join(cell.cell, bias)}
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


def _gru_variables(direction: DirectionWeights, cell: Cell, swapped: bool) -> dict:
    """The same for a GRU, which has variables for the gates and for the candidate."""
    kernel, bias = _rows(direction), _bias(direction)
    w_ru, b_ru = np.concatenate(list(kernel[:2]), axis=-1), bias[:2].reshape(-1)
    if cell.form == "gru_block":
        w_ru, w_c = (kernel[2], w_ru) if swapped else (w_ru, kernel[2])
        return {"w_ru": w_ru, "b_ru": b_ru, "w_c": w_c, "b_c": bias[2]}
    arrays = {"gates/kernel": w_ru, "gates/bias": b_ru}
    if cell.form == "gru":
        return arrays | {"candidate/kernel": kernel[2], "candidate/bias": bias[2]}
    b_x, b_h = direction.biases
    return arrays | {
        f"{tf1.INPUT}kernel": direction.w_x[2],
        f"{tf1.INPUT}bias": b_x[2],
        f"{tf1.HIDDEN}kernel": direction.w_h[2],
        f"{tf1.HIDDEN}bias": b_h[2],
    }


def to_tf1(
    weights: RecurrentWeights,
    *,
    cell: str,
    scope: str = "",
    forget_bias: float | None = None,
    swapped_names: bool = False,
) -> dict[str, np.ndarray]:
    """Writes weights as the variables of TensorFlow 1's cells.

    TensorFlow 1 has one bias for each gate (CudnnGRU two for the candidate): two become their sum.

    Args:
      weights: the layers.
      cell: a value of `cell` for `from_tf1`. It determines the names of the variables below their
        scopes.
      scope: the prefix of the names. It is followed by the scopes of dynamic_rnn, MultiRNNCell and
        (stack_)bidirectional_rnn, such as "rnn/multi_rnn_cell/cell_0/lstm_cell".
      forget_bias: the argument that the LSTM cells will have; None is TensorFlow's default, 1, and
        0 for CudnnLSTM. It is subtracted from the bias. The cells also need the cell_clip of the
        weights as an argument.
      swapped_names: for GRUBlockCell: whether to swap the names of its matrices, as some releases
        do.

    Returns:
      The arrays by the names of the variables.

    Raises:
      UnsupportedError: these cells are of another kind, or lack a feature of the weights.
      ValueError: cell has another value, or an argument is not for it.

    Example:
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=False)
      >>> {name: array.shape for name, array in weights.to_tf1(gru, cell="GRUBlockCell").items()}
      {'rnn/gru_cell/w_ru': (9, 8), 'rnn/gru_cell/b_ru': (8,), 'rnn/gru_cell/w_c': (9, 4),
       'rnn/gru_cell/b_c': (4,)}
    """
    added = _forget_bias_of(cell, forget_bias)
    known = tf1.CELLS[cell]
    if swapped_names and known.form != "gru_block":
        raise ValueError(f"swapped_names is for GRUBlockCell, not for {cell}")
    _require(weights, cell, known)
    variables = {}
    for number, direction_name, direction in weights.named_directions():
        own = tf1.join(scope.strip("/"), _scope_of(weights, cell, number, direction_name))
        if known.form == "joined":
            arrays = _joined_variables(direction, known, added)
        else:
            arrays = _gru_variables(direction, known, swapped_names)
        variables |= {
            tf1.join(own, leaf): np.array(array, order="C")
            for leaf, array in arrays.items()
            if array is not None
        }
    return variables
