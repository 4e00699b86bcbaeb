"""A Keras SimpleRNN layer on the op RNNSequence."""

from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn._ops.simple_rnn import simple_rnn
from tf_blockrnn.layers import _fused_call, _fusing
from tf_blockrnn.layers._fused_layer import FusedLayer


def _run_op(
    cell: Any,
    x: tf.Tensor,
    w_x: tf.Tensor | None,
    states: list[tf.Tensor],
    options: dict[str, Any],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    if len(states) != 1:
        raise ValueError(f"SimpleRNN has one state, got {len(states)} initial states.")
    outputs, state = simple_rnn(
        x,
        w_x,
        _fusing.weight_in_dtype(cell.recurrent_kernel, cell.compute_dtype),
        _fused_call.bias_or_zeros(cell, gates=1),
        activation="relu" if cell.activation in _fusing.RELU else "tanh",
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
    own operations and warns once; `layer.fused` and `layer.why_not_fused` report it. XLA compiles
    the op too (`jit_compile=True`).

    Args:
      units: H, the size of the state and the output.
      *args, **kwargs: as for `keras.layers.SimpleRNN`.
      recompute: as for the other layers. It changes nothing: the gradient needs the outputs alone.

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

    def __init__(
        self,
        units: int,
        activation: _fusing.Activation = "tanh",
        use_bias: bool = True,
        kernel_initializer: _fusing.Initializer = "glorot_uniform",
        recurrent_initializer: _fusing.Initializer = "orthogonal",
        bias_initializer: _fusing.Initializer = "zeros",
        kernel_regularizer: _fusing.Regularizer = None,
        recurrent_regularizer: _fusing.Regularizer = None,
        bias_regularizer: _fusing.Regularizer = None,
        activity_regularizer: _fusing.Regularizer = None,
        kernel_constraint: _fusing.Constraint = None,
        recurrent_constraint: _fusing.Constraint = None,
        bias_constraint: _fusing.Constraint = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: int | None = None,
        *,
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        _fusing.refuse_legacy_keras(self)
        super().__init__(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            **kwargs,
        )
        self._finish_init(recompute)
