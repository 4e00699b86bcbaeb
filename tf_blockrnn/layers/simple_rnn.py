"""A Keras SimpleRNN layer on the op RNNSequence."""

from typing import Any

import keras

from tf_blockrnn._ops.simple_rnn import simple_rnn
from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._fused_layer import FusedLayer


@keras.saving.register_keras_serializable(package="tf_blockrnn")
class SimpleRNN(FusedLayer, keras.layers.SimpleRNN):
    """A `keras.layers.SimpleRNN` that computes a sequence in one op, `BlockRNN>RNNSequence`.

    Constructor and call arguments, defaults, weights (names, shapes, order), config and results are
    those of `keras.layers.SimpleRNN`, and each loads the other's weights. A step is

        h = activation(x W + h_prev R + b)

    (Elman 1990, https://doi.org/10.1207/s15516709cog1402_1).

    Any mask, `dropout`, `recurrent_dropout`, `go_backwards`, `stateful`, `unroll` (which has no
    effect) and `Bidirectional` are supported by the op too. Activations other than tanh and relu, a
    custom cell, or a GPU where this build has no CUDA are not: the layer then falls back to Keras'
    own operations and warns once; `layer.fused` and `layer.why_not_fused` report it. XLA cannot
    compile the op, and `model.compile` takes this into account.

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.SimpleRNN`.

    Call arguments:
      sequences: `[batch, steps, features]`.
      initial_state: `[batch, units]`, or a list of this one tensor; zeros when None.
      mask: `[batch, steps]`, False where a step is skipped; None skips no step.
      training: whether the dropouts are applied.

    Returns:
      The output after the last step, `[batch, units]`, or with `return_sequences` the outputs of
      all steps, `[batch, steps, units]`; with `return_state` a tuple of this and the last state,
      `[batch, units]`. All have the layer's compute dtype: float16, bfloat16, float32 or float64.

    Raises:
      ValueError: an argument that Keras' layer refuses.

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

    _ACTIVATIONS = {"activation": _fusing.TANH + _fusing.RELU}
    _GATES = 1
    _CELLS = (keras.layers.SimpleRNNCell,)

    @_fusing.with_signature_of(keras.layers.SimpleRNN.__init__)
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._warn_if_not_fused()

    def _drops(self, rate):
        # Unlike Keras' other cells, this one drops everything at a rate of 1.
        return rate > 0.0

    def _run_op(self, x, w_x, states, **options):
        cell, dtype = self.cell, self.cell.compute_dtype
        if len(states) != 1:
            raise ValueError(f"SimpleRNN has one state, got {len(states)} initial states.")
        outputs, state = simple_rnn(
            x,
            w_x,
            _fusing.weight_in_dtype(cell.recurrent_kernel, dtype),
            self._bias_or_zeros(),
            activation="relu" if cell.activation in _fusing.RELU else "tanh",
            initial_state=states[0],
            **options,
        )
        return outputs, [state]
