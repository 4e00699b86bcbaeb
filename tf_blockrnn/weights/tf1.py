"""Checkpoints of TensorFlow 1's cells: tf.nn.rnn_cell, tf.contrib.rnn and tf.contrib.cudnn_rnn.

A cell multiplies [x, h'] by one matrix: the rows of the input come first, then those of the state.
Below the scope of a cell a checkpoint has

    kernel [I+P, G·H], bias [G·H]      of RNN and LSTM cells, gates i, c, f, o; with peepholes
                                       w_i_diag, w_f_diag, w_o_diag [H]; with a projection
                                       projection/kernel [H, P]
    gates/kernel [I+H, 2H], gates/bias [2H], candidate/kernel [I+H, H], candidate/bias [H]
                                       of GRUCell and GRUBlockCellV2, gates r, u
    w_ru, b_ru, w_c, b_c               the same of GRUBlockCell; some releases swap the names of the
                                       matrices, and only the shapes tell them apart
    gates/kernel, gates/bias, and kernel, bias below candidate/input_projection and
    candidate/hidden_projection        of CudnnGRU, which resets after the GEMM

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
from tf_blockrnn.weights._checks import UnsupportedError, one_of
from tf_blockrnn.weights._formats import Format
from tf_blockrnn.weights._tf1_checkpoint import Cell, Checkpoint
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights


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
      tf.errors.NotFoundError: there is no such checkpoint on this machine.
      ValueError: it is corrupt.

    Example:
      >>> import os, tempfile, tensorflow as tf
      >>> from tf_blockrnn import weights
      >>> path = os.path.join(tempfile.mkdtemp(), "model")
      >>> names = ["rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"]
      >>> tf.raw_ops.SaveV2(prefix=path, tensor_names=names, shape_and_slices=["", ""],
      ...                   tensors=[tf.zeros([5, 12]), tf.zeros([12])])
      >>> weights.list_tf1(path)
      (TF1Cell(scope='rnn/basic_lstm_cell', cells=('BasicLSTMCell',), input_size=2, units=3),)
    """
    read = Checkpoint(checkpoint)
    found: dict[str, list[str]] = {}
    for name, cell in tf1.CELLS.items():
        for scope in tf1.fitting(read, "", cell):
            found.setdefault(scope, []).append(name)
    return tuple(
        TF1Cell(scope, tuple(names), *tf1.sizes_of(read, scope, tf1.CELLS[names[0]]))
        for scope, names in sorted(found.items())
    )


# ---- from TensorFlow 1


def _read(checkpoint: Checkpoint, scope: str, cell: Cell, forget_bias: float) -> DirectionWeights:
    inputs, _ = tf1.sizes_of(checkpoint, scope, cell)
    parts: dict[tuple[str, str], np.ndarray] = {}

    def add(fields: tuple[str, ...], gates: str, array: np.ndarray) -> None:
        for gate, columns in zip(gates, np.split(array, len(gates), axis=-1), strict=True):
            rows = np.split(columns, [inputs]) if len(fields) == 2 else [columns]
            parts.update(((field, gate), row) for field, row in zip(fields, rows, strict=True))

    def by_gate(field: str) -> np.ndarray | None:
        found = [parts.get((field, gate)) for gate in GATES[cell.cell]]
        given = next((part for part in found if part is not None), None)
        if given is None:
            return None
        return np.stack([np.zeros_like(given) if part is None else part for part in found])

    for variable, name in tf1.variables_of(checkpoint, scope, cell).items():
        fields, gates = variable.fields, variable.gates
        both = [tf1.join(scope, f"{variable.early}{n}") for n in (0, 1)]
        if variable.early and all(one in checkpoint for one in both):
            for field, one in zip(("b_x", "b_h"), both, strict=True):
                add((field,), gates, checkpoint.read(one))
        else:
            add(("b_x",) if fields == ("bias",) else fields, gates, checkpoint.read(name))
    b_x = by_gate("b_x")
    if cell.cell == "lstm":
        b_x[GATES["lstm"].index("f")] += forget_bias
    rows = {leaf: checkpoint.read_if_there(tf1.join(scope, leaf)) for leaf in tf1.PEEPHOLES}
    missing = [leaf for leaf, row in rows.items() if row is None]
    if 0 < len(missing) < len(rows):
        raise ValueError(f"{scope} has peepholes, but no {' and '.join(missing)}")
    projection = checkpoint.read_if_there(tf1.join(scope, tf1.PROJECTION))
    return DirectionWeights(
        by_gate("w_x"),
        by_gate("w_h"),
        b_x,
        by_gate("b_h"),
        peepholes=None if missing else np.stack(list(rows.values())),
        w_p=None if projection is None else projection.T,
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
            "and use weights.from_keras"
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
    bidirectional functions (fw, bw). The numbers are exact, but adding the forget bias may round.

    Args:
      checkpoint: its path, without ".index", or the result of `tf.train.load_checkpoint`.
      cell: "BasicRNNCell", "GRUCell", "GRUBlockCell", "GRUBlockCellV2", "BasicLSTMCell",
        "LSTMCell", "LSTMBlockCell", "LSTMBlockFusedCell", "CudnnLSTM", "CudnnGRU", "CudnnRNNTanh"
        or "CudnnRNNRelu". The CudnnCompatible cells save the same variables as the Cudnn layers.
      scope: that of a cell, such as "rnn/lstm_cell", or one above it that has one network of such
        cells below it. A cell with a custom name needs its complete scope. A scope that contains
        other variables, or has the name of another kind of cell, is refused.
      forget_bias: of LSTM cells; None is TensorFlow's default, 1, and 0 for CudnnLSTM. It is added
        to the bias.
      cell_clip: of LSTMCell and the LSTM block cells, 0 for none. The block cells of early releases
        always clipped at 3.

    Returns:
      The weights. b_h is None except for CudnnGRU, and for CudnnLSTM if both biases were saved.

    Raises:
      ValueError: there is no such cell, or more than one network of them.
      UnsupportedError: each direction is a stack of its own, or the scope has the name of another
        kind of cell.
      tf.errors.NotFoundError: there is no such checkpoint on this machine.

    Example:
      >>> import os, tempfile, tensorflow as tf
      >>> from tf_blockrnn import weights
      >>> path = os.path.join(tempfile.mkdtemp(), "model")
      >>> names = ["rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"]
      >>> tf.raw_ops.SaveV2(prefix=path, tensor_names=names, shape_and_slices=["", ""],
      ...                   tensors=[tf.zeros([5, 12]), tf.zeros([12])])
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
    # The scope of a cell itself selects that cell, at any position in a network.
    stack = [scopes] if scopes == [scope] else tf1.layers_of(scopes, cell)

    layers = [LayerWeights(*(_read(read, own, known, added) for own in layer)) for layer in stack]
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


def _variables(direction: DirectionWeights, cell: Cell, forget_bias: float) -> dict:
    """The arrays of a cell by their names below its scope."""
    gates = GATES[cell.cell]
    bias = np.zeros([len(gates), direction.units], direction.dtype)
    if direction.bias is not None:
        bias[...] = direction.bias
    if cell.cell == "lstm":
        bias[gates.index("f")] -= forget_bias
    b_x, b_h = direction.biases
    fields = {"w_x": direction.w_x, "w_h": direction.w_h, "bias": bias, "b_x": b_x, "b_h": b_h}
    arrays = {}
    for variable in tf1.FORMS[cell.form]:
        columns = [
            np.concatenate([fields[field][gates.index(gate)] for field in variable.fields])
            for gate in variable.gates
        ]
        arrays[variable.name] = np.concatenate(columns, axis=-1)
    if direction.peepholes is not None:
        arrays |= zip(tf1.PEEPHOLES, direction.peepholes.copy(), strict=True)
    if direction.w_p is not None:
        arrays[tf1.PROJECTION] = np.array(direction.w_p.T, order="C")
    return arrays


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
      cell: a value of `cell` for `from_tf1`.
      scope: the prefix of the names. It is followed by the scopes of dynamic_rnn, MultiRNNCell and
        (stack_)bidirectional_rnn, such as "rnn/multi_rnn_cell/cell_0/lstm_cell".
      forget_bias: as in `from_tf1`; it is subtracted from the bias. The cells also need the
        cell_clip of the weights as an argument.
      swapped_names: whether to swap the names of a GRUBlockCell's matrices, as some releases do.

    Returns:
      The arrays by the names of the variables.

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
        arrays = _variables(direction, known, added)
        if swapped_names:
            arrays |= {"w_ru": arrays["w_c"], "w_c": arrays["w_ru"]}
        variables |= {tf1.join(own, leaf): array for leaf, array in arrays.items()}
    return variables
