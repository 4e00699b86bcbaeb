"""Keras' files: .keras, and HDF5 models or weights."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError, intact
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
from tf_blockrnn.weights._h5 import DAMAGE, H5Layer, layers_of, units_of
from tf_blockrnn.weights._keras_arrays import NAMES, NORMS, has_two_biases
from tf_blockrnn.weights.keras import from_keras, to_keras_layers
from tf_blockrnn.weights.layer import DirectionWeights, RecurrentWeights


def _recurrent_layers(layer: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    import keras

    for inner in getattr(layer, "layers", None) or [getattr(layer, "layer", None)]:
        if inner is None or inner is layer:
            continue
        name = prefix + inner.name
        if isinstance(inner, (keras.layers.RNN, keras.layers.Bidirectional)):
            yield name, inner
        else:
            yield from _recurrent_layers(inner, name + "/")


@contextlib.contextmanager
def _with_ending(path: str, ending: str) -> Iterator[str]:
    """The path, or one with the ending by which Keras recognizes a file.

    A copy of an HDF5 model of Keras 2 has a config that Keras 3 can read.
    """
    config = None
    if ending == ".h5":
        from tf_blockrnn.weights._keras_layers import for_keras_3

        found = _model_config(path)
        if json.loads(found) != json.loads(for_keras_3(found)):
            config = for_keras_3(found)
    if path.endswith(ending) and config is None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        named = os.path.join(folder, f"model{ending}")
        if config is None:
            os.symlink(os.path.abspath(path), named)
        else:
            import h5py

            shutil.copyfile(path, named)
            with h5py.File(named, "r+") as file:
                file.attrs["model_config"] = config
        yield named


def _model_config(path: str) -> str:
    import h5py

    with h5py.File(path, "r") as file:
        config = file.attrs["model_config"]
    return config.decode() if isinstance(config, bytes) else str(config)


def read_keras(path: str, options: ReadOptions, ending: str = ".keras") -> FileContents:
    import keras

    from tf_blockrnn import layers  # registers ours
    from tf_blockrnn.weights._keras_graph import check_stack, has_initial_state
    from tf_blockrnn.weights._keras_layers import (
        CUSTOM_OBJECTS,
        check_computes_as_known,
        from_layers,
    )

    del layers
    # Keras does not check the types in a config: hence the AttributeError.
    with intact("Keras model", *DAMAGE, AttributeError), _with_ending(path, ending) as named:
        try:
            with keras.saving.custom_object_scope(CUSTOM_OBJECTS):
                model = keras.models.load_model(named, compile=False)
        except UnsupportedError:
            raise
        except (TypeError, ValueError) as error:
            unknown = re.search(
                r"Could not locate class '(\w+)'|Unknown layer: '(\w+)'", str(error)
            )
            if unknown is None:
                raise
            # Keras adds the whole model's config.
            raise ValueError(
                f"the model has an unknown class, {unknown[1] or unknown[2]}; save its weights, "
                "model.save_weights('model.weights.h5'), and convert that file"
            ) from None
    chosen = select(dict(_recurrent_layers(model)), options.layers)
    for layer in chosen.values():  # of a layer that goes backwards only the cell is read below
        check_computes_as_known(layer)
    check_stack(list(chosen.values()), model)
    backwards = [getattr(layer, "go_backwards", False) for layer in chosen.values()]
    if any(backwards) and len(chosen) > 1:
        # Keras returns the outputs in the order of processing, so the layer above such a layer
        # would read them in reverse order.
        raise UnsupportedError("a layer with go_backwards cannot be part of a stack")
    notes = [
        f"{name}: merge_mode {layer.merge_mode!r} is not a weight and is not converted"
        for name, layer in chosen.items()
        if getattr(layer, "merge_mode", "concat") != "concat"
    ]
    notes += [
        f"{name}: its initial state is computed by the model or is its input, and is not converted"
        for name, layer in chosen.items()
        if has_initial_state(layer)
    ]
    sources = [layer.cell if any(backwards) else layer for layer in chosen.values()]
    return FileContents(from_layers(sources), tuple(chosen), any(backwards), tuple(notes))


def has_model(path: str) -> bool:
    """Whether an HDF5 file is a complete model, and not weights alone."""
    import h5py

    with h5py.File(path, "r") as file, intact("HDF5 file", *DAMAGE):
        return "model_config" in file.attrs


def read_h5(path: str, options: ReadOptions) -> FileContents:
    import h5py

    with h5py.File(path, "r") as file:
        chosen = select(layers_of(file), options.layers)
    parts = [_from_h5(layer, options, name) for name, layer in chosen.items()]
    notes = (
        "the file has only weights: activations, go_backwards and an lstm's clip (--cell-clip) "
        "are not in it",
        "assumed: layers of Keras' own classes with their default activations in Keras 3, tanh and "
        "sigmoid; before 2.3 the default recurrent_activation of Keras' LSTM and GRU was another",
        *assumed_order(chosen),
    )
    return FileContents(stacked(parts), tuple(chosen), notes=notes)


def _from_h5(layer: H5Layer, options: ReadOptions, name: str) -> RecurrentWeights:
    arrays = layer.parts()
    cell = _cell_of_gates(layer.cells[0].arrays, options.cell, name)
    if options.reset and cell != "gru":
        raise UsageError(f"--reset is for a gru, {name} is of the cell {cell}")
    try:
        return from_keras(
            arrays,
            cell=cell,
            reset_after=options.reset == "after" if options.reset else None,
            cell_clip=options.cell_clip or 0.0,
            bidirectional=layer.backward is not None,
        )
    except ValueError as error:
        if "reset_after must be given" in str(error):
            raise UsageError(
                f"{name}: specify with --reset whether the gru resets before or after the GEMM, "
                "which a file without biases does not record"
            ) from None
        raise


def _cell_of_gates(arrays: list[np.ndarray], given: str | None, name: str) -> str:
    gates = arrays[1].shape[1] // units_of(arrays)
    if given is None and gates not in (3, 4):
        raise UsageError(f"{name} has {gates} gate(s): specify its cell with --cell")
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
