"""Checkpoints of TensorFlow 1."""

from __future__ import annotations

from tf_blockrnn.weights._file_format import FileContents, ReadOptions, UsageError
from tf_blockrnn.weights._tf1_checkpoint import CELLS, Cell
from tf_blockrnn.weights.tf1 import from_tf1, list_tf1


def read_tf1(path: str, options: ReadOptions) -> FileContents:
    if options.layers:
        raise UsageError("a TensorFlow 1 checkpoint has scopes: use --scope, not --layer")
    cell, scope = options.cell, options.scope or ""
    if cell is None:
        held = list_tf1(path)
        below = [c for c in held if f"{c.scope}/".startswith(f"{scope}/".lstrip("/"))]
        listed = "; ".join(f"{c.scope}: {' or '.join(c.cells)}" for c in below or held)
        raise UsageError(
            "specify with --cell whose variables to read: "
            + (f"it holds {listed}" if held else "the checkpoint has no cell of a known name")
        )
    weights = from_tf1(
        path,
        cell=cell,
        scope=scope,
        forget_bias=options.forget_bias,
        cell_clip=options.cell_clip or 0.0,
    )
    return FileContents(weights, (scope or cell,), notes=_assumptions_of_tf1(CELLS[cell], options))


def _assumptions_of_tf1(cell: Cell, options: ReadOptions) -> tuple[str, ...]:
    """What a checkpoint does not record, and what is taken for it."""
    notes = []
    if cell.cell == "lstm" and options.forget_bias is None:
        notes.append(
            f"assumed: forget_bias={cell.forget_bias:g}, TensorFlow's default (--forget-bias)"
        )
    if "cell_clip" in cell.has and options.cell_clip is None:
        notes.append(
            "assumed: no cell_clip (--cell-clip); the LSTM block cells of early releases clip at 3"
        )
    if "projection" in cell.has:
        notes.append("assumed: no proj_clip, which would bound the projection")
    notes.append(
        f"assumed: the default activation, {'relu' if cell.cell == 'rnn_relu' else 'tanh'}; no "
        "wrapper that changes inputs or outputs; the directions and the order of the layers as "
        "the scopes name them"
    )
    return tuple(notes)
