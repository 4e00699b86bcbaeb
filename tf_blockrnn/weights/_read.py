"""`read`: the recurrent weights in anything that has them."""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tf_blockrnn.weights._checks import is_a
from tf_blockrnn.weights._file_format import FileContents, ReadOptions, UsageError
from tf_blockrnn.weights._keras_live import is_layer
from tf_blockrnn.weights.layer import RecurrentWeights

_EXPECTED = (
    "source must be a weights.RecurrentWeights, a Keras layer or model or a list of layers, a "
    "PyTorch module or state dict, an ONNX model, or the path of a file"
)
_OPTIONS = [field.name for field in dataclasses.fields(ReadOptions) if field.name != "layers"]


class AssumptionWarning(UserWarning):
    """A reader of weights assumed what a source does not record, or left out what it records.

    Example:
      >>> import warnings
      >>> import numpy as np
      >>> from tf_blockrnn import weights
      >>> state = {"weight_ih_l0": np.ones([12, 2]), "weight_hh_l0": np.ones([12, 3])}
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     _ = weights.read(state)
      >>> print(caught[0].message)
      assumed: modules of PyTorch's own classes, whose weights are all that a state dict has
    """

    __module__ = "tf_blockrnn.weights"  # where it is public


def read(
    source: Any, *, layer: str | Sequence[str] | None = None, **options: Any
) -> RecurrentWeights:
    """Reads the recurrent weights in a file, a model or a layer of any of the frameworks.

    The functions `from_keras`, `from_torch` and so on read one form each and assume nothing. This
    one recognizes the form, finds the recurrent layers in it by name, and warns of what it assumes.

    Args:
      source: the path of a file that `python -m tf_blockrnn convert` reads, of which nothing is
        executed (SECURITY.md); a Keras layer, a list of them or a model, of Keras 3 or tf_keras; a
        torch.nn.Module, also one made by TorchScript, that is or has an LSTM, GRU or RNN; a state
        dict, or a mapping that has one at any depth; an onnx.ModelProto; or `RecurrentWeights`,
        which are returned.
      layer: the name of the layer, if the source has several; several names, in a sequence or
        separated by commas, become a stack, from the input up.
      **options: what a source does not record; an option that does not apply is an error:
        cell: "lstm", "gru", "rnn_tanh" or "rnn_relu", for a state dict or HDF5 weights; the class
          of the cells, for a TensorFlow 1 checkpoint.
        recurrent_activation: "sigmoid" or "hard_sigmoid", for HDF5 weights of Keras.
        reset: "before" or "after" the GEMM, for HDF5 weights of a gru without biases.
        cell_clip: for HDF5 weights or a TensorFlow 1 checkpoint; default: none.
        forget_bias, scope: for a TensorFlow 1 checkpoint.

    Returns:
      The weights, in their own type.

    Raises:
      TypeError: source is of another type, or an option has an unknown name.
      ValueError: there is no such file, its content cannot be read, the source has no recurrent
        layer or several, or an option is missing or does not apply.
      UnsupportedError: `RecurrentWeights` cannot represent the layers.
      ModuleNotFoundError: a package that the form needs is missing.
      OSError: the operating system refuses to read the file.
      MemoryError: there is not enough memory for the weights.

    Warns:
      AssumptionWarning: for each assumption.

    Example:
      >>> import keras
      >>> from tf_blockrnn import weights
      >>> model = keras.Sequential([keras.Input([None, 3]), keras.layers.GRU(4, name="gru")])
      >>> weights.read(model, layer="gru").layers[0].forward.units
      4
    """
    check_options("read", options)
    contents = contents_of(source, layer, options)
    if contents.reverse:
        _warn(
            f"{', '.join(contents.layers)}: begins with the last step, which weights do not record",
            3,
        )
    warn_of_assumptions(contents, stacklevel=3)
    return contents.weights


def warn_of_assumptions(contents: FileContents, stacklevel: int) -> None:
    for note in contents.notes:
        _warn(note, stacklevel + 1)


def _warn(text: str, stacklevel: int) -> None:
    warnings.warn(_as_keywords(text), AssumptionWarning, stacklevel=stacklevel + 1)


def _as_keywords(text: str) -> str:
    """A message that names options of the command with the names of arguments, and values."""
    values = "rnn_tanh|rnn_relu|before|after|sigmoid|hard_sigmoid"
    text = re.sub(rf"--(cell|reset|recurrent-activation) ({values})\b", r'--\1"\2"', text)
    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", lambda match: match[1].replace("-", "_") + "=", text)


def check_options(where: str, options: Iterable[str]) -> None:
    """Refuses arguments of a function that are none of the options of `read`."""
    for name in options:
        if name not in _OPTIONS:
            raise TypeError(
                f"{where} got an unexpected argument, {name!r}; what a source does not record are "
                f"{', '.join(_OPTIONS)}"
            )


def contents_of(
    source: Any, layer: str | Sequence[str] | None, options: Mapping[str, Any]
) -> FileContents:
    """What `read` reads, with what it assumes.

    Raises:
      What `read` does.
    """
    names = layer.split(",") if isinstance(layer, str) else layer
    if not (
        names is None
        or (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names))
    ):
        raise TypeError(f"layer must be a name or a list of names, got {layer!r}")
    try:
        layers = tuple(name.strip() for name in names or ())
        return _contents_of(source, ReadOptions(layers=layers, **options))
    except UsageError as error:
        raise ValueError(_as_keywords(str(error))) from error


def _contents_of(source: Any, options: ReadOptions) -> FileContents:
    if isinstance(source, RecurrentWeights):
        options.require("weights.RecurrentWeights", ())
        return FileContents(source, ())
    if isinstance(source, (str, os.PathLike)):
        from tf_blockrnn.weights._files import read as read_file

        return read_file(os.fspath(source), options)
    if isinstance(source, Mapping):
        options.require("a mapping", ("layers", "cell"))
        from tf_blockrnn.weights._file_torch import read_mapping

        return read_mapping(source, options, "the mapping")
    if is_a(source, "torch", "nn.Module"):
        options.require("a PyTorch module", ("layers",))
        from tf_blockrnn.weights._file_torch import read_module

        return read_module(source, options)
    if is_a(source, "onnx", "ModelProto"):
        options.require("an ONNX model", ("layers",))
        from tf_blockrnn.weights._file_onnx import read_model

        return read_model(source, options)
    return _of_layers(source, options)


def _of_layers(source: Any, options: ReadOptions) -> FileContents:
    layers = source if isinstance(source, (list, tuple)) else [source]
    if not layers or not all(map(is_layer, layers)):
        raise TypeError(f"{_EXPECTED}, got {_described(source)}")
    from tf_blockrnn.weights._file_keras import read_keras_layers

    return read_keras_layers(layers, options)


def _described(source: Any) -> str:
    if isinstance(source, (list, tuple)):
        names = dict.fromkeys(type(one).__name__ for one in source)
        return f"a {type(source).__name__} of {', '.join(names) or 'nothing'}"
    return type(source).__name__
