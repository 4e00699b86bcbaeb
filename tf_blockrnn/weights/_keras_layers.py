"""Inspection of Keras' recurrent layers and ours: their cells, the form and arrays of each cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tf_blockrnn import layers as our_layers
from tf_blockrnn.layers import _zoneout
from tf_blockrnn.layers._extended_gru_cell import ExtendedGRUCell
from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell
from tf_blockrnn.layers._fusing import RELU, SIGMOID, TANH
from tf_blockrnn.weights._keras_2_layers import CuDNNGRU, CuDNNGRUCell, CuDNNLSTM, CuDNNLSTMCell
from tf_blockrnn.weights._keras_arrays import Arrays, Form, parse, to_direction
from tf_blockrnn.weights._overrides import check_overrides
from tf_blockrnn.weights.layer import GATES, LayerWeights, RecurrentWeights, UnsupportedError

_CELLS = (
    *(CuDNNGRUCell, CuDNNLSTMCell),
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
        raise UnsupportedError(
            f"{cell.name}: {argument} must be {known[0].__name__}, "
            f"got {getattr(found, '__name__', found)}, with which the weights have another meaning"
        )


def check_computes_as_known(layer: keras.layers.Layer) -> None:
    """Refuses a subclass that may use the weights of a layer or cell in another computation."""
    base = next((one for one in type(layer).__mro__ if one in _KNOWN), None)
    if base is not None:
        check_overrides(layer, base, layer.name)


def form_of(cell: keras.layers.Layer) -> Form:
    """The form of a cell; refuses activations that RecurrentWeights cannot represent.

    Example:
      >>> import keras
      >>> from tf_blockrnn.weights._keras_layers import form_of
      >>> form_of(keras.layers.GRUCell(4))
      Form(cell='gru', reset_after=True, cell_clip=0.0, zoneout_state=0.0, zoneout=0.0,
           epsilon=None, norm_output_only=None)
    """
    if isinstance(cell, keras.layers.SimpleRNNCell):
        if cell.activation in RELU:
            return Form("rnn_relu")
        _read_activation(cell, "activation", TANH)
        return Form("rnn_tanh")
    _read_activation(cell, "activation", TANH)
    _read_activation(cell, "recurrent_activation", SIGMOID)
    if isinstance(cell, our_layers.LayerNormLSTMCell):
        return Form(
            "layer_norm_lstm",
            epsilon=cell.norm_epsilon,
            norm_output_only=cell.norm_output_only,
        )
    if isinstance(cell, our_layers.LayerNormGRUCell):
        return Form("layer_norm_gru", epsilon=cell.norm_epsilon)
    if isinstance(cell, keras.layers.GRUCell):
        return Form("gru", cell.reset_after, **_zoneout.config(cell))
    clip = getattr(cell, "cell_clip", None) or 0.0
    return Form("lstm", cell_clip=clip, **_zoneout.config(cell))


def arrays_of(cell: keras.layers.Layer) -> Arrays:
    """The weights of a built cell."""
    if not cell.built:
        raise ValueError(f"{cell.name} has no weights yet: build it, or call it once")

    def array(name: str) -> np.ndarray | None:
        variable = getattr(cell, name, None)
        if variable is not None and not isinstance(variable, keras.Variable):
            raise UnsupportedError(f"{cell.name}: {name} is computed, it is not a variable")
        return None if variable is None else keras.ops.convert_to_numpy(variable.value)

    if isinstance(cell, (CuDNNGRUCell, CuDNNLSTMCell)):
        names = ("kernel", "recurrent_kernel", "bias")
        return parse([array(name) for name in names], len(GATES[form_of(cell).cell]))
    norms = {}
    if form_of(cell).norms:
        sublayers = {"norm_x": "kernel_norm", "norm_h": "recurrent_norm", "norm_c": "state_norm"}
        norms = {
            name: _norm_of(getattr(cell, sublayer))
            for name, sublayer in sublayers.items()
            if hasattr(cell, sublayer)
        }
    peepholes = tuple(array(name) for name in ("wci", "wcf", "wco"))
    return Arrays(
        array("kernel"),
        array("recurrent_kernel"),
        array("bias"),
        None if peepholes[0] is None else np.stack(peepholes),
        array("w_p"),
        **norms,
    )


def _norm_of(norm: keras.layers.LayerNormalization) -> np.ndarray:
    """gamma and beta, stacked."""
    return np.stack([keras.ops.convert_to_numpy(each.value) for each in (norm.gamma, norm.beta)])


class Cells(NamedTuple):
    """The cells of a Keras layer: several of a stack, or a forward and a backward one."""

    forward: list[keras.layers.Layer]
    backward: keras.layers.Layer | None = None
    # Whether the output is the forward output concatenated with the backward one.
    concatenates: bool = True


def cells_of(layer: keras.layers.Layer) -> Cells:
    """The cells of a layer; refuses properties that RecurrentWeights cannot represent."""
    check_computes_as_known(layer)
    if isinstance(layer, keras.layers.Bidirectional):
        if layer.forward_layer.go_backwards:
            raise UnsupportedError(f"{layer.name}: its forward layer has go_backwards")
        forward, backward = (
            _cells_of_rnn(one) for one in (layer.forward_layer, layer.backward_layer)
        )
        if len(forward) > 1 or len(backward) > 1:
            raise UnsupportedError(
                f"{layer.name}: each direction is a stack of its own, and their outputs are merged "
                "only at the end; a stack here merges the directions of each layer"
            )
        return Cells(forward, backward[0], layer.merge_mode == "concat")
    if isinstance(layer, keras.layers.RNN):
        if layer.go_backwards:
            raise UnsupportedError(
                f"{layer.name} has go_backwards, which is not a weight and would be lost; "
                "pass its cell, or its get_weights(), to read only the weights"
            )
        return Cells(_cells_of_rnn(layer))
    return Cells(_flat(layer))


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
    layers: list[LayerWeights] = []
    forms: list[Form] = []
    for number, source in enumerate(sources):
        cells = cells_of(source)
        if not cells.concatenates and number + 1 < len(sources):
            raise UnsupportedError(
                f"{source.name}: below another layer its merge_mode must be 'concat', "
                f"got {source.merge_mode!r}"
            )
        for cell in cells.forward:
            both = [cell] if cells.backward is None else [cell, cells.backward]
            forms += [form_of(one) for one in both]
            layers.append(LayerWeights(*(to_direction(arrays_of(c), form_of(c)) for c in both)))
    for form in forms:
        if form != forms[0]:
            raise UnsupportedError(f"all cells must be of one kind, got {forms[0]} and {form}")
    first = forms[0]
    return RecurrentWeights(layers=layers, **first._asdict())
