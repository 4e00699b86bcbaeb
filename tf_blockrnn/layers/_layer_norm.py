"""What the layers with layer normalisation share, and what their cells do."""

import math
import numbers
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tf_blockrnn import _keras_private
from tf_blockrnn.layers import _cell_arguments, _fused_call, _fusing
from tf_blockrnn.layers._extended_lstm_cell import gate_gemms


class Norm(keras.layers.LayerNormalization):
    """Keras' layer normalisation of the last axis, with derivatives of every order.

    Keras' own takes the variance from `tf.nn.moments`, which stops the gradient of the mean: that
    is 0 in a first derivative, and not in a second one.
    """

    def call(self, inputs):
        # As in Keras, in float32 at least, and in its order.
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        mean = ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x - mean), axis=-1, keepdims=True)
        factor = ops.rsqrt(variance + self.epsilon) * ops.cast(self.gamma, x.dtype)
        return ops.cast(x * factor + (ops.cast(self.beta, x.dtype) - mean * factor), inputs.dtype)


def _check_epsilon(owner: Any, given: float) -> None:
    what = f"{type(owner).__name__}: norm_epsilon must be a"
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise TypeError(f"{what} number, got {given!r}.")
    if not 0 < given < math.inf:  # nor a NaN
        raise ValueError(f"{what} finite number above 0, got {given!r}.")


class NormalizedCell:
    """Mixin over a Keras cell that has norms, each with a gamma and a beta."""

    _GATES: int
    _NORMS: tuple[str, ...]

    _SPEC: _fused_call.LayerSpec

    # The loop over the cell is an op, though a step alone is not.
    supports_jit = _keras_private.supports_jit(
        lambda cell: (
            type(cell) in cell._SPEC.cells and _fused_call.why_no_step(cell, cell._SPEC) is None
        )
    )

    def __init__(
        self,
        *args: Any,
        norm_gamma_initializer: _fusing.Initializer = "ones",
        norm_beta_initializer: _fusing.Initializer = "zeros",
        norm_epsilon: float = 1e-3,
        **kwargs: Any,
    ):
        _check_epsilon(self, norm_epsilon)
        super().__init__(*args, **kwargs)
        self.norm_epsilon = float(norm_epsilon)
        self.norm_gamma_initializer = keras.initializers.get(norm_gamma_initializer)
        self.norm_beta_initializer = keras.initializers.get(norm_beta_initializer)
        for name in self._NORMS:
            norm = Norm(
                epsilon=self.norm_epsilon,
                # Of their own: an initializer may not be used twice.
                gamma_initializer=_copied(self.norm_gamma_initializer),
                beta_initializer=_copied(self.norm_beta_initializer),
                dtype=self.dtype_policy,
                name=name,
            )
            setattr(self, name, norm)

    def build(self, input_shape):
        super().build(input_shape)
        for name in self._NORMS:
            width = self.units if name == "state_norm" else self._GATES * self.units
            getattr(self, name).build((None, width))

    def get_config(self):
        return {**super().get_config(), **self.norm_config()}

    @property
    def fused(self) -> bool:
        """Whether this cell runs on a fused op when it is called by hand: it does not."""
        return False

    @property
    def why_not_fused(self) -> str:
        """The reason why it does not."""
        return _fusing.Reason(_fusing.BY_STEPS, f"keras.layers.RNN({type(self).__name__})")

    def _checked(self, inputs: Any, states: Any) -> tuple[list[Any], bool]:
        """The states in the compute dtype, and whether the cell returns them in a list."""
        states, in_list = _cell_arguments.checked(self, inputs, states)
        states = [ops.cast(state, self.compute_dtype) for state in states]
        _cell_arguments.check_shapes(self, inputs, states, in_list)
        return states, in_list

    def _normalized_sums(self, inputs: Any, h_prev: Any, training: bool) -> tuple:
        """kernel_norm(x W) and recurrent_norm(h_prev R), with the dropouts of training."""
        inputs_mask = recurrent_mask = None
        if training and 0.0 < self.dropout < 1.0:
            inputs_mask = self.get_dropout_mask(inputs)
        if training and 0.0 < self.recurrent_dropout < 1.0:
            recurrent_mask = self.get_recurrent_dropout_mask(h_prev)
        of_x = gate_gemms(inputs, self.kernel, inputs_mask, self._GATES)
        of_h = gate_gemms(h_prev, self.recurrent_kernel, recurrent_mask, self._GATES)
        return (
            self.kernel_norm(ops.concatenate(of_x, axis=1)),
            self.recurrent_norm(ops.concatenate(of_h, axis=1)),
        )

    def norm_config(self) -> dict[str, Any]:
        """The arguments that the cells with norms have."""
        return {
            "norm_gamma_initializer": keras.initializers.serialize(self.norm_gamma_initializer),
            "norm_beta_initializer": keras.initializers.serialize(self.norm_beta_initializer),
            "norm_epsilon": self.norm_epsilon,
        }


def _copied(initializer: Any) -> Any:
    return keras.initializers.get(keras.initializers.serialize(initializer))


def weights_of(cell: NormalizedCell, norm: str) -> tuple[tf.Tensor, tf.Tensor]:
    """gamma and beta of a norm in the compute dtype."""
    of_norm = getattr(cell, norm)
    return tuple(
        _fusing.weight_in_dtype(each, cell.compute_dtype) for each in (of_norm.gamma, of_norm.beta)
    )


class NormalizedLayer:
    """Mixin over a fused layer whose cell has norms."""

    def __init__(
        self,
        *args: Any,
        norm_gamma_initializer: _fusing.Initializer = "ones",
        norm_beta_initializer: _fusing.Initializer = "zeros",
        norm_epsilon: float = 1e-3,
        recompute: bool | int = False,
        **kwargs: Any,
    ):
        _check_epsilon(self, norm_epsilon)
        own = {
            "norm_gamma_initializer": norm_gamma_initializer,
            "norm_beta_initializer": norm_beta_initializer,
            "norm_epsilon": norm_epsilon,
        }
        if "norm_output_only" in kwargs:  # of an LSTM
            own["norm_output_only"] = kwargs.pop("norm_output_only")
        self._construct(args, kwargs, own, recompute)

    def get_config(self):
        config = {**super().get_config(), **self.cell.norm_config()}
        config.pop("use_cudnn", None)
        return config
