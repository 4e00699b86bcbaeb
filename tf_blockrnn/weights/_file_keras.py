"""Keras' files: .keras, and HDF5 models or weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._file_format import (
    FileContents,
    Job,
    ReadOptions,
    UsageError,
    Written,
    assumed_order,
    select,
    stacked,
)
from tf_blockrnn.weights._h5 import H5Layer, layers_of, open_h5, units_of
from tf_blockrnn.weights._h5_checks import attribute
from tf_blockrnn.weights._keras_arrays import NAMES, NORMS, has_two_biases
from tf_blockrnn.weights._keras_files import keras_model, version_of
from tf_blockrnn.weights._keras_graph import check_stack, notes_of_graph
from tf_blockrnn.weights._keras_layers import (
    LAYERS,
    KerasLayer,
    from_layers,
    notes_of,
    of_one_cell,
    recurrent_layers,
)
from tf_blockrnn.weights._keras_live import LiveLayer
from tf_blockrnn.weights.keras import from_keras, to_keras_layers
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights

_WAY_TO_INNER = {
    "the model": "pass the recurrent layer itself, such as model.layers[0].rnn",
    "the file": "save the weights, model.save_weights('model.weights.h5'), and read that file",
}


def _chosen(model: KerasLayer, wanted: Sequence[str], of: str) -> dict[str, KerasLayer]:
    """The selected recurrent layers, or all if they are a stack."""
    found = dict(recurrent_layers(model))
    if not any(layer.kind in LAYERS for layer in found.values()):
        kinds = (layer.class_name for layer in model.all_inner("layers"))
        classes = [name for name in dict.fromkeys(kinds) if name != "InputLayer"]
        raise UsageError(
            f"{of} has no recurrent layer of a known class, but "
            f"{', '.join(classes or [model.class_name])}. If one is in a layer of your own class, "
            f"{_WAY_TO_INNER[of]}"
        )
    if wanted or len(found) == 1:
        chosen = select(found, wanted, of=of)
        for name, layer in chosen.items():
            if layer.kind not in LAYERS:
                raise UnsupportedError(
                    f"{name}: it is not known what its class {layer.class_name} computes, which is "
                    f"of another program; {_WAY_TO_INNER[of]}"
                )
        check_stack(list(chosen.values()), model)
        return chosen
    try:
        is_stack = all(layer.kind in LAYERS for layer in found.values())
        if is_stack:
            check_stack(list(found.values()), model)
            is_stack = of_one_cell(list(found.values()))
    except UnsupportedError:
        is_stack = False
    return found if is_stack else select(found, wanted, of=of)  # which raises


def _contents(
    chosen: Iterable[tuple[str, KerasLayer]], model: KerasLayer | None = None, selected: bool = True
) -> FileContents:
    names, layers = zip(*chosen, strict=True)
    backwards = any(layer.get("go_backwards") for layer in layers)
    named = list(zip(names, layers, strict=True))
    notes = (*notes_of(named), *notes_of_graph(named, model, selected))
    mode = layers[-1].get("merge_mode", "concat")
    return FileContents(from_layers(layers), names, backwards, notes, mode)


def read_keras(path: str, options: ReadOptions) -> FileContents:
    """Reads a complete model, .keras or HDF5."""
    with keras_model(path) as model:
        chosen = _chosen(model, options.layers, "the file")
        return _contents(chosen.items(), model, bool(options.layers))


def read_keras_layers(sources: Sequence[Any], options: ReadOptions) -> FileContents:
    """Reads a model of Keras or tf_keras, a layer or cell, or a list of those that is a stack."""
    layers = [LiveLayer(one) for one in sources]
    if len(layers) == 1 and layers[0].has_layers:
        options.require("a Keras model", ("layers",))
        chosen = _chosen(layers[0], options.layers, "the model")
        return _contents(chosen.items(), layers[0], bool(options.layers))
    options.require("Keras layers", ())
    if all(layer.kind in LAYERS for layer in layers):
        check_stack(layers)
    return _contents((layer.name, layer) for layer in layers)


def has_model(path: str) -> bool:
    """Whether an HDF5 file is a complete model, and not weights alone."""
    with open_h5(path) as file:
        return "model_config" in file.attrs


def read_h5(path: str, options: ReadOptions) -> FileContents:
    with open_h5(path) as file:
        version = attribute(file, "keras_version", "")
        chosen = select(layers_of(file), options.layers)
    version = version.decode() if isinstance(version, bytes) else str(version)
    parts = [_from_h5(layer, options, name) for name, layer in chosen.items()]
    assumed = [
        _check_recurrent_activation(name, layer, part.cell, options, version)
        for (name, layer), part in zip(chosen.items(), parts, strict=True)
    ]
    notes = (
        "the file has only weights: activations, go_backwards and an lstm's clip (--cell-clip) "
        "are not in it",
        "assumed: layers of Keras' own classes with the activation tanh and, of two directions, "
        "merge_mode concat",
        *dict.fromkeys(filter(None, assumed)),
        *assumed_order(chosen),
    )
    return FileContents(stacked(parts), tuple(chosen), notes=notes)


def _check_recurrent_activation(
    name: str, layer: H5Layer, cell: str, options: ReadOptions, version: str
) -> str | None:
    """A note of what is assumed for an lstm or gru."""
    arrays, given = layer.cells[0].arrays, options.recurrent_activation
    of_cudnn = len(arrays) == 3 and arrays[2].shape == (2 * arrays[1].shape[1],)
    if cell not in ("lstm", "gru") or of_cudnn:
        if given:
            raise UsageError(
                f"--recurrent-activation is for an LSTM or GRU, {name} is "
                f"{'of cuDNN' if of_cudnn else f'of the cell {cell}'}"
            )
        return None
    if given == "hard_sigmoid" and layer.hard_sigmoid is None:
        raise UnsupportedError(
            f"{name}: the file is of tf_keras or of Keras 3, whose hard_sigmoid differ; which of "
            "them wrote it is recorded in a file of the complete model"
        )
    if given:
        return None
    if not layer.keras_3 and version_of(version) < (2, 3):
        also = " (but tf.keras in TensorFlow 2, sigmoid)" if "-tf" in version else ""
        raise UsageError(
            f"{name}: the file is of Keras {version or 'of an unknown version'}, and before 2.3 "
            f"the default recurrent_activation was hard_sigmoid{also}, which a file of weights "
            "does not record: specify it with --recurrent-activation"
        )
    return (
        "assumed: recurrent_activation sigmoid, the default since Keras 2.3 "
        "(--recurrent-activation)"
    )


def _from_h5(layer: H5Layer, options: ReadOptions, name: str) -> RecurrentWeights:
    arrays = layer.parts()
    cell = _cell_of_gates(layer.cells[0].arrays, options.cell, name)
    if options.reset and cell != "gru":
        raise UsageError(f"--reset is for a gru, {name} is of the cell {cell}")
    try:
        read = from_keras(
            arrays,
            cell=cell,
            reset_after=options.reset == "after" if options.reset else None,
            cell_clip=options.cell_clip or 0.0,
            bidirectional=layer.backward is not None,
        )
    except ValueError as error:
        if "reset_after must be given" in str(error):
            raise UsageError(
                f"{name}: specify whether the gru resets before or after the GEMM, with --reset "
                "before or --reset after: a file without biases does not record it"
            ) from None
        raise
    if options.recurrent_activation == "hard_sigmoid" and layer.hard_sigmoid:
        read = dataclasses.replace(read, hard_sigmoid=layer.hard_sigmoid)
    return read


def _cell_of_gates(arrays: list[np.ndarray], given: str | None, name: str) -> str:
    gates = arrays[1].shape[1] // units_of(arrays)
    if given is None and gates not in (3, 4):
        raise UsageError(
            f"{name} has {gates} gate(s): specify its cell with --cell rnn_tanh or --cell rnn_relu"
        )
    return given or {3: "gru", 4: "lstm"}[gates]


def write_keras(job: Job) -> Written:
    """Writes a Sequential model of the layers, each of which returns its outputs of all steps."""
    import keras

    weights = job.weights
    if job.reverse and weights.num_layers > 1:
        # Such a layer returns its outputs in the order of processing.
        raise UnsupportedError("Keras cannot stack layers that go from the last step to the first")
    backwards = {"go_backwards": True} if job.reverse else {}
    layers = to_keras_layers(weights, package=job.package, return_sequences=True, **backwards)
    inputs = keras.Input((None, weights.input_size), dtype=weights.dtype.name)
    keras.Sequential([inputs, *layers]).save(job.path)

    def place(number: int, direction_name: str, array: str, one: DirectionWeights) -> str:
        layer = layers[number]
        name = layer.name
        if weights.layers[number].directions == 2:
            name += f"/{getattr(layer, f'{direction_name}_layer').name}"
        if array in NORMS:
            return ", ".join(f"{name}/{NORMS[array]}/{part}" for part in ("gamma", "beta"))
        if array in NAMES:
            return ", ".join(f"{name}/{variable}" for variable in NAMES[array])
        if has_two_biases(weights.cell, weights.reset_after):
            return f"{name}/bias[{int(array == 'b_h')}]"
        both = one.b_x is not None and one.b_h is not None
        return f"{name}/bias" + (", summed" if both else "")

    lines = ()
    if job.reverse:
        lines = ("go_backwards: the outputs are in the order of processing, last step first",)
    return Written(place, lines)
