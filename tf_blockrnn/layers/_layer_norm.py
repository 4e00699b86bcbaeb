"""What the layers with layer normalisation share, and what their cells do."""

import math
from typing import Any

import keras
import tensorflow as tf
from keras import ops

from tf_blockrnn.layers import _fusing
from tf_blockrnn.layers._extended_lstm_cell import gate_gemms

ARGUMENTS = ("norm_gamma_initializer", "norm_beta_initializer", "norm_epsilon")


def checked_epsilon(epsilon: float) -> float:
    """Of a constructor.

    Raises:
      ValueError: it is not a finite number above 0.
    """
    if not 0 < epsilon < math.inf:  # nor a NaN
        raise ValueError(f"norm_epsilon must be a finite number above 0, got {epsilon!r}.")
    return float(epsilon)


class NormalizedCell:
    """Mixin over a Keras cell that has norms, each with a gamma and a beta."""

    def _init_norms(
        self, names: tuple[str, ...], gamma: _fusing.Initializer, beta: _fusing.Initializer
    ) -> None:
        """Makes the layers that are the norms; `norm_epsilon` is set before."""
        self.norm_gamma_initializer = keras.initializers.get(gamma)
        self.norm_beta_initializer = keras.initializers.get(beta)
        for name in names:
            norm = keras.layers.LayerNormalization(
                epsilon=self.norm_epsilon,
                # Of their own: an initializer may not be used twice.
                gamma_initializer=_copied(self.norm_gamma_initializer),
                beta_initializer=_copied(self.norm_beta_initializer),
                dtype=self.dtype_policy,
                name=name,
            )
            setattr(self, name, norm)

    def _normalized_sums(self, inputs: Any, h_prev: Any, gates: int, training: bool) -> tuple:
        """kernel_norm(x W) and recurrent_norm(h_prev R), with the dropouts of training."""
        inputs_mask = recurrent_mask = None
        if training and 0.0 < self.dropout < 1.0:
            inputs_mask = self.get_dropout_mask(inputs)
        if training and 0.0 < self.recurrent_dropout < 1.0:
            recurrent_mask = self.get_recurrent_dropout_mask(h_prev)
        of_x = gate_gemms(inputs, self.kernel, inputs_mask, gates)
        of_h = gate_gemms(h_prev, self.recurrent_kernel, recurrent_mask, gates)
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

    # Keras' cuDNN path would leave the norms out.
    @property
    def use_cudnn(self) -> bool:
        return False

    @use_cudnn.setter
    def use_cudnn(self, value: bool | str) -> None:
        """keras.layers.Bidirectional copies one direction's value to the other."""

    def get_config(self):
        config = {**super().get_config(), **self.cell.norm_config()}
        config.pop("use_cudnn", None)
        return config
