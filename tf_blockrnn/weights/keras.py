"""Weights in the form of Keras' GRU, LSTM and SimpleRNN, and of the layers in `tf_blockrnn.layers`.

Keras' matrices are those of x·W with the columns of all gates concatenated, `kernel` [I, G · H] and
`recurrent_kernel` [H, G · H]. The gate order is i, f, c, o (lstm) and u, r, c (gru; Keras calls
them z, r, h). There is one `bias` [G · H], but two, [2, 3H], in a gru with `reset_after`. Source:
the weights and equations of `keras.layers.GRUCell`, `LSTMCell` and `SimpleRNNCell`. The layers of
`tf_blockrnn.layers` can have more: peepholes, a projection, a clip, zoneout and norms.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_blockrnn.weights._cells import GATES, NORM_CELLS, OPTIONS
from tf_blockrnn.weights._checks import UnsupportedError, one_of, wrong_source
from tf_blockrnn.weights._formats import KERAS, OUR_ARRAYS, OUR_LAYERS
from tf_blockrnn.weights._keras_arrays import Arrays, parse, to_arrays, to_direction
from tf_blockrnn.weights._keras_graph import check_stack
from tf_blockrnn.weights._keras_layers import LAYERS, from_layers
from tf_blockrnn.weights._keras_live import LiveLayer, is_layer
from tf_blockrnn.weights.layer import DirectionWeights, LayerWeights, RecurrentWeights

if TYPE_CHECKING:
    import keras

_LAYERS = {
    "lstm": "LSTM",
    "gru": "GRU",
    "rnn_tanh": "SimpleRNN",
    "rnn_relu": "SimpleRNN",
    "layer_norm_lstm": "LayerNormLSTM",
    "layer_norm_gru": "LayerNormGRU",
}
# The layers of each package.
_LAYERS_OF = {"keras": KERAS, "tf_blockrnn": OUR_LAYERS}
# The arguments of layers for the options of RecurrentWeights, and all that weights define.
_ARGUMENTS = {name: name for name in OPTIONS}
_ARGUMENTS |= {"epsilon": "norm_epsilon", "hard_sigmoid": "recurrent_activation"}
_DEFINED = {
    *("units", "use_bias", "use_peephole", "peepholes", "projection"),
    *_ARGUMENTS.values(),
}
# Of LayerNormLSTM and LayerNormGRU, and of TensorFlow Addons' cell.
_EPSILON = 1e-3


# ---- from Keras


def _from_arrays(
    layers: Sequence[Sequence[np.ndarray]], cell: str, bidirectional: bool, options: dict[str, Any]
) -> RecurrentWeights:
    described = []
    for arrays in layers:
        parts = [arrays]
        if bidirectional:
            if len(arrays) % 2:
                raise ValueError(
                    f"two directions must have an even number of arrays, got {len(arrays)}"
                )
            parts = [arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]]
        both = [parse(part, cell) for part in parts]
        if cell == "gru" and options["reset_after"] is None:
            options["reset_after"] = _resets_after(both)
        described.append(
            LayerWeights(*(to_direction(one, cell, options["reset_after"]) for one in both))
        )
    return RecurrentWeights(cell, described, **options)


def _resets_after(directions: Sequence[Arrays]) -> bool:
    """Whether a gru does, by the shape of its biases."""
    biases = [one.bias for one in directions if one.bias is not None]
    if not biases:
        raise ValueError("reset_after must be given for a gru without biases")
    return biases[0].ndim == 2  # of a CuDNNGRU too


def _from_layers(source: Sequence[Any]) -> RecurrentWeights:
    layers = [LiveLayer(one) for one in source]
    for layer in layers:
        if layer.get("go_backwards") and layer.kind in LAYERS:
            raise UnsupportedError(
                f"{layer.name} has go_backwards, which is not a weight and would be lost; "
                "pass its cell, or its get_weights(), to read only the weights"
            )
    if all(layer.kind in LAYERS for layer in layers):
        check_stack(layers)
    return from_layers(layers)


def from_keras(
    source: Any,
    *,
    cell: str | None = None,
    reset_after: bool | None = None,
    cell_clip: float = 0.0,
    bidirectional: bool = False,
    epsilon: float | None = None,
    norm_output_only: bool | None = None,
) -> RecurrentWeights:
    """Reads the weights of Keras' recurrent layers or ours, bit for bit.

    Only weights are read: not dropout, or `return_sequences` and `merge_mode` of the top layer. A
    list of layers must be a stack in their model too, if they are in one: between two of them only
    layers that return their input at inference, such as Dropout, are allowed. A subclass that
    overrides the computation is refused.

    Args:
      source: a GRU, LSTM or SimpleRNN layer of Keras 3 or tf_keras, a CuDNNGRU or CuDNNLSTM, our
        LayerNormLSTM or LayerNormGRU, their cell, `RNN` or `StackedRNNCells` of such cells, or
        `Bidirectional` of such a layer; a list of these is a stack. Or the arrays of
        `get_weights()` of one layer, or a list of such lists, also of CuDNN layers. The other
        arguments are for arrays alone.
      cell: required for arrays: a name as in `RecurrentWeights`.
      reset_after: of a gru; None derives it from the shape of the bias.
      cell_clip: of an lstm; 0 for no clip.
      bidirectional: whether each list has the forward arrays, then the backward ones.
      epsilon: of layers with layer normalisation; None is 1e-3, our layers' default.
      norm_output_only: of a layer_norm_lstm; None is False, our layer's default.

    Returns:
      The weights; the single bias of an lstm, a simple RNN or a gru that resets before the GEMM
      is b_x, and b_h is None. CuDNN layers have both.

    Raises:
      UnsupportedError: another activation than tanh and relu, or of gates than sigmoid and
        hard_sigmoid, layers of different kinds or that are no stack, or go_backwards outside of
        Bidirectional.
      ValueError: a layer has no weights yet, or an argument is missing or given with layers.

    Example:
      >>> import keras
      >>> from tf_blockrnn import weights
      >>> layer = keras.layers.GRU(4)
      >>> layer.build((None, None, 3))
      >>> gru = weights.from_keras(layer)
      >>> gru.reset_after, gru.layers[0].forward.w_x.shape
      (True, (3, 3, 4))
      >>> weights.from_keras(layer.get_weights(), cell="gru") == gru
      True
    """
    if is_layer(source):
        source = [source]
    if not isinstance(source, (list, tuple)) or not source:
        raise wrong_source("from_keras", "a layer or a list that is not empty", source)
    options = {
        "reset_after": reset_after,
        "cell_clip": cell_clip,
        "epsilon": epsilon,
        "norm_output_only": norm_output_only,
    }
    if all(map(is_layer, source)):
        given = {"cell": cell, "bidirectional": bidirectional or None, **options}
        given["cell_clip"] = cell_clip or None
        if names := ", ".join(name for name, value in given.items() if value is not None):
            raise ValueError(f"{names} must not be given with layers, which define it")
        return _from_layers(source)
    if cell is None:
        raise ValueError(f"for arrays, cell must be one of {', '.join(GATES)}, got None")
    one_of("for arrays, cell", cell, GATES)
    if epsilon is None and cell in NORM_CELLS:
        options["epsilon"] = _EPSILON
    if norm_output_only is None and cell == "layer_norm_lstm":
        options["norm_output_only"] = False
    nested = isinstance(source[0], (list, tuple))
    return _from_arrays(source if nested else [source], cell, bidirectional, options)


# ---- to Keras


def to_keras(weights: RecurrentWeights, *, package: str = "keras") -> list[list[np.ndarray]]:
    """Writes weights as the arrays that `set_weights` of Keras' layers takes.

    Where Keras has one bias (lstm, simple RNN, gru without reset_after) it is the sum b_x + b_h,
    rounded to the weights' type; if only one of them exists, it is copied. Where it has two, a
    missing one is zeros. The layer must have the same `use_bias`, `reset_after`, activation,
    `norm_epsilon`, `norm_output_only` and type, which are not among the arrays. `to_keras_layers`
    returns such layers.

    Args:
      weights: any number of layers.
      package: of the layers, "keras" or "tf_blockrnn".

    Returns:
      For each layer a list: kernel [I, G · H], recurrent kernel [P, G · H], bias [G · H] or
      [2, 3H], then wci, wcf, wco [H] and the projection [P, H], or gamma and beta of each norm,
      [G · H] or [H], if they exist. With two directions the forward arrays come first.

    Raises:
      UnsupportedError: the layers of the package have not all of this, or the arrays do not
        record it: a cell_clip, zoneout, relu or a hard sigmoid.

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([3, 5, 4]), np.ones([3, 4, 4]))
      >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
      >>> layer = keras.layers.GRU(4, use_bias=False)
      >>> layer.build((None, None, 5))
      >>> layer.set_weights(weights.to_keras(gru)[0])
    """
    _LAYERS_OF[one_of("package", package, _LAYERS_OF)].require(weights)
    OUR_ARRAYS.require(weights)
    return _to_arrays(weights)


def _to_arrays(weights: RecurrentWeights) -> list[list[np.ndarray]]:
    return [
        [array for one in layer for array in to_arrays(one, weights)] for layer in weights.layers
    ]


def _new_layer(
    module: ModuleType, weights: RecurrentWeights, one: DirectionWeights, arguments: dict[str, Any]
) -> keras.layers.Layer:
    import keras

    special: dict[str, Any] = {
        argument: getattr(weights, option)
        for option, argument in _ARGUMENTS.items()
        if getattr(weights, option) != OPTIONS[option].default
    }
    if weights.cell == "rnn_relu":
        special["activation"] = "relu"
    if weights.hard_sigmoid:
        special["recurrent_activation"] = "hard_sigmoid"
    if one.peepholes is not None:
        special["use_peephole"] = True
    if one.w_p is not None:
        special["projection"] = one.output_size
    if keras.dtype_policies.get(arguments["dtype"]).variable_dtype in ("float16", "bfloat16"):
        # TensorFlow cannot compute the default, an orthogonal matrix, in 16 bits.
        special["recurrent_initializer"] = "glorot_uniform"
    kind = getattr(module, _LAYERS[weights.cell])
    return kind(one.units, use_bias=one.has_bias, **{**special, **arguments})


def to_keras_layers(
    weights: RecurrentWeights,
    *,
    package: str = "keras",
    return_sequences: bool = False,
    merge_mode: str | None = "concat",
    batch_size: int | None = None,
    **arguments: Any,
) -> list[keras.layers.Layer]:
    """Builds Keras layers with these weights.

    Args:
      weights: any number of layers.
      package: of the layers, "keras" or "tf_blockrnn".
      return_sequences: of the top layer; the layers below it always return sequences.
      merge_mode: of the top layer, if it has two directions; below it is "concat".
      batch_size: B of the inputs, an int, required with `stateful=True`; None for any.
      **arguments: further arguments of each GRU, LSTM or SimpleRNN, but none that the weights
        define; `dtype` defaults to the type of the weights, which are rounded to a narrower one.

    Returns:
      One layer for each of the weights' layers, from the input up, wrapped in `Bidirectional`
      if there are two directions. The biases are those of `to_keras`.

    Raises:
      UnsupportedError: peepholes, a projection, a clip, zoneout or norms, for Keras' own layers; a
        hard sigmoid of another slope than 1/6.
      ValueError: an argument is defined by the weights, or a value is out of the range of `dtype`.

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn import weights
      >>> one = weights.DirectionWeights(np.ones([1, 3, 2], "f4"), np.ones([1, 2, 2], "f4"))
      >>> rnn = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one, one)])
      >>> model = keras.Sequential(weights.to_keras_layers(rnn, return_sequences=True))
      >>> tuple(model(np.ones([1, 5, 3])).shape)
      (1, 5, 4)
    """
    import keras

    _LAYERS_OF[one_of("package", package, _LAYERS_OF)].require(weights)
    if defined := sorted(_DEFINED.intersection(arguments)):
        raise ValueError(f"{', '.join(defined)} must not be given: the weights define it")
    arguments = {"dtype": weights.dtype.name, **arguments}
    weights = weights.astype(keras.dtype_policies.get(arguments["dtype"]).variable_dtype)
    arrays = _to_arrays(weights)
    if package == "keras":
        module = keras.layers
    else:
        from tf_blockrnn import layers as module
    layers = []
    for number, described in enumerate(weights.layers):
        top = number + 1 == weights.num_layers
        own = {**arguments, "return_sequences": return_sequences or not top}
        layer = _new_layer(module, weights, described.forward, own)
        if described.backward is not None:
            backward = _new_layer(
                module, weights, described.backward, {**own, "go_backwards": True}
            )
            layer = keras.layers.Bidirectional(
                layer,
                backward_layer=backward,
                merge_mode=merge_mode if top else "concat",
                dtype=arguments["dtype"],
            )
        layer.build((batch_size, None, described.forward.input_size))
        layer.set_weights(arrays[number])
        layers.append(layer)
    return layers
