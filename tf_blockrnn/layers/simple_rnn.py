"""A Keras SimpleRNN layer and cell on the op RNNSequence."""

from typing import Any

import keras

from tf_blockrnn._ops.simple_rnn import simple_rnn
from tf_blockrnn.layers import _fused_call, _fusing
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers._like_keras import like_keras


def _run_op(cell, x, w_x, states, options):
    if len(states) != 1:
        raise ValueError(f"SimpleRNN has one state, got {len(states)} initial states.")
    outputs, state = simple_rnn(
        x,
        w_x,
        _fusing.weight_in_dtype(cell.recurrent_kernel, cell.compute_dtype),
        _fused_call.bias_or_zeros(cell, gates=1),
        activation=cell.activation.__name__,
        initial_state=states[0],
        **options,
    )
    return outputs, [state]


SPEC = _fused_call.LayerSpec(
    keras_class=keras.layers.SimpleRNN,
    cells=(keras.layers.SimpleRNNCell,),
    activations={"activation": _fusing.TANH + _fusing.RELU},
    gates=1,
    run_op=_run_op,
    drops_at_one=True,
)


@like_keras(keras.layers.SimpleRNN)
class SimpleRNN(FusedLayer, keras.layers.SimpleRNN):
    """A `keras.layers.SimpleRNN` that computes a sequence in one op, `BlockRNN>RNNSequence`.

    {layer_of_keras}

    {simple_rnn}

    Any mask, `dropout`, `recurrent_dropout`, `go_backwards`, `stateful`, `unroll` (which changes no
    speed) and `Bidirectional` are supported by the op too. Activations other than tanh and relu, a
    custom cell, or a GPU where this build has no CUDA are not: the layer then falls back to Keras'
    own operations and warns once; `layer.fused` and `layer.why_not_fused` report it. XLA compiles
    the op too (`jit_compile=True`).

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.{keras}`.
      recompute: as for the other layers. It changes nothing: the gradient needs the outputs alone.

    {layer_call}

    Raises:
      TypeError: an argument of a wrong type.
      ValueError: an argument that Keras' layer refuses; a number for `recompute` that is not above
        0.

    Example:
      >>> import numpy as np
      >>> import tf_blockrnn
      >>> layer = tf_blockrnn.layers.SimpleRNN(4, activation="relu", return_state=True)
      >>> output, state = layer(np.ones((2, 5, 3), "float32"))
      >>> tuple(output.shape), bool((output == state).numpy().all())
      ((2, 4), True)
      >>> layer.fused
      True
    """

    _SPEC = SPEC

    def __init__(self, *args: Any, recompute: bool | int = False, **kwargs: Any):
        self._construct(args, kwargs, {}, recompute)


@like_keras(keras.layers.SimpleRNNCell)
class SimpleRNNCell(FusedCell, keras.layers.SimpleRNNCell):
    """A `keras.layers.SimpleRNNCell` that computes a step in one op, `BlockRNN>RNNSequence`.

    {cell_of_keras}

    {simple_rnn}

    `keras.layers.RNN` over this cell, or over a stack of such cells, computes a sequence in one op
    for each cell. `dropout` and `recurrent_dropout` are supported by the op too. Activations other
    than tanh and relu, or a GPU where this build has no CUDA are not: the cell then falls back to
    Keras' own operations and warns once; `cell.fused` and `cell.why_not_fused` report it.

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.{keras}`.

    {cell_call}

    Raises:
      ValueError: an argument that Keras' cell refuses.

    Example:
      >>> import numpy as np
      >>> import keras
      >>> import tf_blockrnn
      >>> cell = tf_blockrnn.layers.SimpleRNNCell(4, activation="relu")
      >>> layer = keras.layers.RNN(cell, return_sequences=True)
      >>> tuple(layer(np.ones((2, 5, 3), "float32")).shape)
      (2, 5, 4)
      >>> cell.fused
      True
    """

    _SPEC = SPEC

    def call(self, sequence, states, training=False):
        # Keras' name of the inputs of this cell.
        return super().call(sequence, states, training=training)

    def _masks(self, x, h_prev, training):
        # Unlike Keras' other cells, this one draws masks that it does not use, and drops everything
        # at a rate of 1.
        masks = self.get_dropout_mask(x), self.get_recurrent_dropout_mask(h_prev)
        return masks if training else (None, None)
