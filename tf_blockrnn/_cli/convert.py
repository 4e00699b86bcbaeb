"""`python -m tf_blockrnn convert IN OUT`: weights from one framework's file to another's.

Exit status: 0 if OUT was written; 1 if IN cannot be read, or OUT cannot represent it or cannot be
written; 2 if the options are wrong or not sufficient. OUT is replaced only after it has been
written completely.

Example:
  >>> import contextlib, tempfile
  >>> import numpy as np
  >>> from tf_blockrnn._cli import convert
  >>> from tf_blockrnn import weights
  >>> one = weights.DirectionWeights(np.ones([3, 5, 4], "f4"), np.ones([3, 4, 4], "f4"))
  >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
  >>> with contextlib.chdir(tempfile.mkdtemp()):
  ...     weights.to_npz(gru, "gru.npz")
  ...     convert.main(["gru.npz", "gru.npy"])
  gru.npz: gru: gru (reset after), 1 layer, one direction, I = 5, H = 4, float32
  array                shape      location
  layer 0 forward w_x  [3, 5, 4]  params[0:60]
  layer 0 forward w_h  [3, 4, 4]  params[60:108]
  params: 132 of float32
  geometry: rnn_mode='gru', num_units=4, input_size=5, num_layers=1, direction='unidirectional', ...
  gru.npy: 656 bytes
  0
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import zipfile
from collections.abc import Sequence

from tf_blockrnn.weights import RecurrentWeights, _files
from tf_blockrnn.weights._file_format import FileContents, Job, ReadOptions, UsageError, Written

_DESCRIPTION = """Converts the weights of recurrent layers between frameworks.

IN is one of
  a Keras model, .keras or HDF5, or HDF5 weights, of Keras 2 or 3
  a PyTorch state dict, also of haste's layers with layer normalisation, in a checkpoint of any
    nesting or in safetensors; a TorchScript or torch.export archive
  an ONNX model
  weights of this package, .npz
  the prefix of a TensorFlow 1 checkpoint
It is recognized by its content, whatever its name. What a file does not record is printed as
assumed.
"""

_EPILOG = """If IN has several layers, --layer selects one; a list separated by commas becomes a
stack, from the input up: --layer lstm_1,lstm_2
In Keras and ONNX models the graph must show that they are one.

Example:
  python -m tf_blockrnn convert model.ckpt-1000 model.keras --cell LSTMBlockCell
"""

# The errors that the frameworks raise for a corrupt file or a file of another kind.
_FAILURES = (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile)


class _NotWritten(Exception):
    """OUT cannot be written, whatever is in IN."""


def _failures() -> tuple[type[Exception], ...]:
    """_FAILURES, and those of the frameworks that were needed, and so are imported.

    ONNX has an error for an invalid model or one without its external data.
    """
    onnx, tensorflow = sys.modules.get("onnx"), sys.modules.get("tensorflow")
    found = list(_FAILURES)
    if onnx is not None:
        found.append(onnx.checker.ValidationError)
    if tensorflow is not None:
        found.append(tensorflow.errors.OpError)
    return tuple(found)


def _endings() -> str:
    """The endings of the files that can be written, each with its format."""
    return ", ".join(
        f"{' or '.join(target.endings)} ({name})" for name, target in _files.TARGETS.items()
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tf_blockrnn convert",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="IN", help="the file to read")
    parser.add_argument("target", metavar="OUT", help="the file to write")
    parser.add_argument(
        "--to",
        choices=_files.TARGETS,
        help=f"the format of OUT; by default that of its ending: {_endings()}",
    )
    parser.add_argument("--layer", metavar="NAME[,NAME...]", help="which layers of IN")
    parser.add_argument(
        "--cell",
        help="for a state dict or HDF5 weights: lstm, gru, rnn_tanh or rnn_relu, if the number "
        "of gates does not determine it; for a TensorFlow 1 checkpoint: the class of the cells",
    )
    parser.add_argument("--scope", help="for a TensorFlow 1 checkpoint: the scope of the cells")
    parser.add_argument(
        "--forget-bias",
        type=float,
        help="for a TensorFlow 1 checkpoint: the argument of the cells (default: TensorFlow's)",
    )
    parser.add_argument(
        "--cell-clip",
        type=float,
        help="for HDF5 weights or a TensorFlow 1 checkpoint: the argument of the cells (default: "
        "none)",
    )
    parser.add_argument(
        "--reset",
        choices=("before", "after"),
        help="for HDF5 weights of a gru without biases, whose shape would determine it: whether "
        "the reset gate acts before or after the GEMM",
    )
    parser.add_argument(
        "--recurrent-activation",
        choices=("sigmoid", "hard_sigmoid"),
        help="for HDF5 weights: the recurrent_activation of the layers, whose default was "
        "hard_sigmoid before Keras 2.3",
    )
    parser.add_argument(
        "--package",
        choices=("keras", "tf_blockrnn"),
        default="keras",
        help="the package of the layers with --to keras; those of tf_blockrnn can have peepholes, "
        "a projection, a clip and layer normalisation",
    )
    return parser


def _say(what: str) -> None:
    """Says on a terminal what is being done: the import of a framework takes seconds."""
    if sys.stderr.isatty():
        print(what, file=sys.stderr, flush=True)


def _check_target(options: argparse.Namespace) -> None:
    """Checks the options about OUT; the format follows from the ending if it is not given."""
    ending = pathlib.Path(options.target).suffix
    if options.to is None:
        fitting = (name for name, target in _files.TARGETS.items() if ending in target.endings)
        options.to = next(fitting, None)
    if options.to is None:
        raise UsageError(f"OUT must end in {_endings()}, got {options.target!r}")
    endings = _files.TARGETS[options.to].endings
    if ending not in endings:
        raise UsageError(
            f"OUT must end in {' or '.join(endings)} with --to {options.to}, got {options.target!r}"
        )
    folder = os.path.dirname(os.path.abspath(options.target))
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: there is no such folder")
    if os.path.isdir(options.target):
        raise UsageError(f"OUT must be a file, got the folder {options.target!r}")
    if os.path.exists(options.target) and os.path.exists(options.source):
        if os.path.samefile(options.source, options.target):
            raise UsageError("IN and OUT are the same file")
    if options.package != "keras" and options.to != "keras":
        raise UsageError("--package is for --to keras")


def _write(contents: FileContents, options: argparse.Namespace) -> Written:
    """Writes a temporary file next to OUT, and renames it to OUT when it is complete."""
    final = pathlib.Path(options.target)
    partial = final.with_name(f".{final.stem}.{os.getpid()}{final.suffix}")
    job = Job(contents.weights, str(partial), contents.reverse, options.package)
    try:
        written = _files.write(options.to, job)
        os.replace(partial, final)
    except OSError as error:
        raise _NotWritten(f"{options.target}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return written


def _description(weights: RecurrentWeights) -> str:
    first = weights.layers[0].forward
    reset = {None: "", True: " (reset after)", False: " (reset before)"}[weights.reset_after]
    layers = f"{weights.num_layers} layer" + ("s" if weights.num_layers > 1 else "")
    directions = {1: "one direction", 2: "both directions", None: "mixed directions"}[
        weights.directions
    ]
    sizes = f"I = {weights.input_size}, H = {first.units}"
    sizes += f", P = {first.output_size}" if first.w_p is not None else ""
    clip = f", clip {weights.cell_clip:g}" if weights.cell_clip else ""
    rates = {"h": weights.zoneout_h, "cs": weights.zoneout_c}
    clip += "".join(f", zoneout of {state} {rate:g}" for state, rate in rates.items() if rate)
    clip += ", relu for tanh" if weights.activation == "relu" else ""
    slope = weights.hard_sigmoid
    clip += f", hard sigmoid of the slope {slope:g}" if slope else ""
    norms = "" if weights.epsilon is None else f", epsilon {weights.epsilon:g}"
    norms += ", norm of the output only" if weights.norm_output_only else ""
    cell = f"{weights.cell}{reset}"
    return f"{cell}, {layers}, {directions}, {sizes}{clip}{norms}, {weights.dtype.name}"


def _summary(weights: RecurrentWeights, written: Written) -> str:
    """A table: each array, its shape and its location in OUT."""
    rows = [("array", "shape", "location")]
    for number, direction_name, one in weights.named_directions():
        for name, array in one.arrays.items():
            shape = f"[{', '.join(map(str, array.shape))}]"
            place = written.place(number, direction_name, name, one)
            rows.append((f"layer {number} {direction_name} {name}", shape, place))
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    return "\n".join(
        f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {place}" for name, shape, place in rows
    )


def _convert(options: argparse.Namespace) -> None:
    _check_target(options)
    read_options = ReadOptions(
        layers=tuple(options.layer.split(",")) if options.layer is not None else (),
        cell=options.cell,
        scope=options.scope,
        forget_bias=options.forget_bias,
        cell_clip=options.cell_clip,
        reset=options.reset,
        recurrent_activation=options.recurrent_activation,
    )
    _say(f"reading {options.source}")
    contents = _files.read(options.source, read_options)
    _say(f"writing {options.target}")
    written = _write(contents, options)
    names = ", ".join(filter(None, contents.layers))  # a module itself has no name
    print(": ".join(filter(None, (options.source, names, _description(contents.weights)))))
    print(_summary(contents.weights, written))
    for line in (*contents.notes, *written.lines):
        print(line)
    print(f"{options.target}: {os.path.getsize(options.target)} bytes")


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        _convert(options)
    except UsageError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"convert: this needs the package {error.name}: it is missing", file=sys.stderr)
        return 1
    except _NotWritten as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    except _failures() as error:
        message = str(error).removeprefix(f"{options.source}: ")
        message = " ".join(message.split()) or type(error).__name__  # Keras' have several lines
        print(f"convert: {options.source}: {message}", file=sys.stderr)
        return 1
    return 0
