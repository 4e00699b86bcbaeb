"""Inspection of Keras' recurrent layers and ours: their cells, the form and arrays of each cell.

For the CuDNNLSTM and CuDNNGRU of Keras 2 models there are layers with their weights, so that Keras
can load such a model. They compute nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from typing import Any

import keras

from tf_blockrnn import layers as our_layers
from tf_blockrnn.layers import _zoneout
from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell
from tf_blockrnn.layers._fusing import RELU, SIGMOID, TANH
from tf_blockrnn.weights._checks import UnsupportedError, check_overrides, stack_per_direction
from tf_blockrnn.weights._formats import KERAS_HARD_SIGMOID, first_of_one_kind
from tf_blockrnn.weights._keras_arrays import NAMES, NORMS, Arrays, norms_of, parse, to_direction
from tf_blockrnn.weights.layer import LayerWeights, RecurrentWeights

# ---- the CuDNNLSTM and CuDNNGRU of Keras 2, which Keras 3 does not have


class _CuDNNLayer:
    def __init__(self, units: int, *, time_major: bool = False, **kwargs: Any):
        if time_major:
            raise UnsupportedError("layers with time_major=True are not supported")
        super().__init__(units, **kwargs)
        self.cell.add_weight = functools.partial(_add_weight, self.cell)

    def inner_loop(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("this layer is only for reading its weights")


def _add_weight(cell: keras.layers.Layer, *args: Any, **kwargs: Any) -> keras.Variable:
    """Of the biases of both GEMMs makes one array, [2 · G · H]."""
    if kwargs.get("name") == "bias":
        kwargs |= {"shape": (2 * cell.recurrent_kernel.shape[-1],), "initializer": "zeros"}
    return type(cell).add_weight(cell, *args, **kwargs)


class CuDNNLSTM(_CuDNNLayer, keras.layers.LSTM):
    """A layer with the weights of a CuDNNLSTM."""


class CuDNNGRU(_CuDNNLayer, keras.layers.GRU):
    """A layer with the weights of a CuDNNGRU."""


CUSTOM_OBJECTS = {"CuDNNLSTM": CuDNNLSTM, "CuDNNGRU": CuDNNGRU}


def for_keras_3(model_config: str) -> str:
    """The config of a model in an HDF5 file, in JSON, as Keras 3 can read it.

    These classes become custom ones: Keras finds its own only in its modules. The shape of
    the first layer's input, which Keras 3 takes to be without the batch, and the list of layers
    that was the config of a Sequential until Keras 2.2.2, get the form of Keras 3. A GRU without
    `reset_after`, of an early release, resets before the GEMM, unlike the default of Keras 3.
    """

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        name, config = found.get("class_name"), found.get("config")
        if name in CUSTOM_OBJECTS and "module" in found:
            found |= {"module": None, "registered_name": name}
        if name == "GRU" and isinstance(config, dict):
            config.setdefault("reset_after", False)
        if name == "Sequential" and isinstance(config, list):
            found["config"] = {"name": "sequential", "layers": config}
        if name != "InputLayer" and isinstance(config, dict) and "batch_input_shape" in config:
            config["input_shape"] = config.pop("batch_input_shape")[1:]
        return found

    return json.dumps(json.loads(model_config, object_hook=changed))


# ---- inspection

_HARD_SIGMOID = (keras.activations.hard_sigmoid, keras.ops.hard_sigmoid)
_CELLS = (
    *(our_layers.GRUCell, our_layers.LSTMCell, ExtendedGRUCell, ExtendedLSTMCell),
    *(our_layers.LayerNormGRUCell, our_layers.LayerNormLSTMCell),
    *(keras.layers.GRUCell, keras.layers.LSTMCell, keras.layers.SimpleRNNCell),
)
# The layers and cells whose outputs are computed from their cells' weights by our equations.
_KNOWN = (
    *_CELLS,
    *(CuDNNGRU, CuDNNLSTM),
    *(our_layers.GRU, our_layers.LSTM, our_layers.SimpleRNN),
    *(our_layers.LayerNormGRU, our_layers.LayerNormLSTM),
    *(keras.layers.GRU, keras.layers.LSTM, keras.layers.SimpleRNN),
    *(keras.layers.RNN, keras.layers.StackedRNNCells, keras.layers.Bidirectional),
)


def _read_activation(cell: keras.layers.Layer, argument: str, known: Sequence[Any]) -> None:
    found = getattr(cell, argument)
    if found not in known:
        names = dict.fromkeys(function.__name__ for function in known)
        raise UnsupportedError(
            f"{cell.name}: {argument} must be {' or '.join(names)}, "
            f"got {getattr(found, '__name__', found)}, with which the weights have another meaning"
        )


def check_computes_as_known(layer: keras.layers.Layer) -> None:
    """Refuses a subclass that may use the weights of a layer or cell in another computation."""
    base = next((one for one in type(layer).__mro__ if one in _KNOWN), None)
    if base is not None:
        check_overrides(layer, base, layer.name)


def _kind_of(cell: keras.layers.Layer) -> tuple[str, dict[str, Any]]:
    """The cell and its options in RecurrentWeights; refuses activations that those have not."""
    if isinstance(cell, keras.layers.SimpleRNNCell):
        if cell.activation in RELU:
            return "rnn_relu", {}
        _read_activation(cell, "activation", TANH)
        return "rnn_tanh", {}
    if isinstance(cell, (our_layers.LayerNormLSTMCell, our_layers.LayerNormGRUCell)):
        _read_activation(cell, "activation", TANH)
        _read_activation(cell, "recurrent_activation", SIGMOID)
    if isinstance(cell, our_layers.LayerNormLSTMCell):
        form = {"norm_output_only": cell.norm_output_only}
        return "layer_norm_lstm", {"epsilon": cell.norm_epsilon, **form}
    if isinstance(cell, our_layers.LayerNormGRUCell):
        return "layer_norm_gru", {"epsilon": cell.norm_epsilon}
    _read_activation(cell, "activation", TANH + RELU)
    _read_activation(cell, "recurrent_activation", SIGMOID + _HARD_SIGMOID)
    options = {
        "activation": "relu" if cell.activation in RELU else "tanh",
        "hard_sigmoid": KERAS_HARD_SIGMOID if cell.recurrent_activation in _HARD_SIGMOID else 0.0,
        **_zoneout.rates(cell),
    }
    if isinstance(cell, keras.layers.GRUCell):
        return "gru", {"reset_after": cell.reset_after, **options}
    return "lstm", {"cell_clip": getattr(cell, "cell_clip", None) or 0.0, **options}


def _arrays_of(cell: keras.layers.Layer, kind: str) -> Arrays:
    """The weights of a built cell."""
    if not cell.built:
        raise ValueError(f"{cell.name} has no weights yet: build it, or call it once")

    names = ("kernel", "recurrent_kernel", "bias", *NAMES["peepholes"], *NAMES["w_p"])
    variables = {name: getattr(cell, name, None) for name in names}
    for norm in norms_of(kind):
        sublayer = getattr(cell, NORMS[norm])
        variables |= {f"{norm}.gamma": sublayer.gamma, f"{norm}.beta": sublayer.beta}
    variables = {name: one for name, one in variables.items() if one is not None}
    for name, variable in variables.items():
        if not isinstance(variable, keras.Variable):
            raise UnsupportedError(f"{cell.name}: {name} is computed, it is not a variable")
    return parse([keras.ops.convert_to_numpy(one.value) for one in variables.values()], kind)


def _weights_of(cell: keras.layers.Layer) -> RecurrentWeights:
    """The weights of a built cell, as a layer of one direction."""
    kind, options = _kind_of(cell)
    direction = to_direction(_arrays_of(cell, kind), kind, options.get("reset_after"))
    return RecurrentWeights(kind, [LayerWeights(direction)], **options)


def _cells_of(layer: keras.layers.Layer) -> list[list[keras.layers.Layer]]:
    """The cells of each layer of a stack, forward, then backward if there are two directions.

    Refuses properties that RecurrentWeights cannot represent.
    """
    check_computes_as_known(layer)
    if isinstance(layer, keras.layers.Bidirectional):
        if layer.forward_layer.go_backwards:
            raise UnsupportedError(f"{layer.name}: its forward layer has go_backwards")
        forward, backward = (
            _cells_of_rnn(one) for one in (layer.forward_layer, layer.backward_layer)
        )
        if len(forward) > 1 or len(backward) > 1:
            raise stack_per_direction(layer.name)
        return [[*forward, *backward]]
    if isinstance(layer, keras.layers.RNN):
        if layer.go_backwards:
            raise UnsupportedError(
                f"{layer.name} has go_backwards, which is not a weight and would be lost; "
                "pass its cell, or its get_weights(), to read only the weights"
            )
        layer = layer.cell
    return [[cell] for cell in _flat(layer)]


def _cells_of_rnn(layer: keras.layers.Layer) -> list[keras.layers.Layer]:
    if not isinstance(layer, keras.layers.RNN):
        raise TypeError(f"{layer.name} must be a recurrent layer, got {type(layer).__name__}")
    check_computes_as_known(layer)
    return _flat(layer.cell)


def _flat(cell: Any) -> list[keras.layers.Layer]:
    check_computes_as_known(cell)
    if isinstance(cell, keras.layers.StackedRNNCells):
        return [one for inner in cell.cells for one in _flat(inner)]
    if not isinstance(cell, _CELLS):
        of_model = "; pass the recurrent ones of its layers"
        hint = of_model if isinstance(cell, keras.Model) else ""
        raise TypeError(
            "expected a layer or cell of Keras' or tf_blockrnn's GRU, LSTM or SimpleRNN, of "
            "tf_blockrnn's LayerNormLSTM or LayerNormGRU, Bidirectional, "
            f"a list of them or lists of arrays, got {type(cell).__name__}{hint}"
        )
    return [cell]


def from_layers(sources: Sequence[keras.layers.Layer]) -> RecurrentWeights:
    """The weights of layers that are known to be a stack."""
    parts, layers = [], []
    for number, source in enumerate(sources):
        stack = _cells_of(source)
        mode = getattr(source, "merge_mode", "concat")
        if mode != "concat" and number + 1 < len(sources):
            raise UnsupportedError(
                f"{source.name}: below another layer its merge_mode must be 'concat', got {mode!r}"
            )
        for cells in stack:
            found = [_weights_of(cell) for cell in cells]
            layers.append(LayerWeights(*(one.layers[0].forward for one in found)))
            parts += found
    return dataclasses.replace(first_of_one_kind(parts), layers=layers)
