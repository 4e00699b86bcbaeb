"""A Keras LSTM cell with more than Keras' own has, in Keras' own operations."""

import numbers
from typing import Any

import keras
from keras import ops

from tf_blockrnn.layers import _fusing, _zoneout

_GATES = 4


def check_own(
    owner: Any, use_peephole: bool, cell_clip: float | None, projection: int | None
) -> None:
    """Checks arguments of the constructor of a cell or of its layer.

    Raises:
      TypeError: one is of a wrong type.
      ValueError: cell_clip or projection is not above 0.
    """
    _fusing.check_flag(owner, "use_peephole", use_peephole)
    _check_positive(owner, "cell_clip", cell_clip, numbers.Real, "a number")
    _check_positive(owner, "projection", projection, numbers.Integral, "an integer")


def _check_positive(owner: Any, name: str, value: float | None, kind: type, kind_name: str) -> None:
    if value is None:
        return
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    if not is_kind or not value > 0:  # nor a NaN
        error = ValueError if is_kind else TypeError
        what = f"{type(owner).__name__}: {name}"
        raise error(f"{what} must be {kind_name} above 0, or None; got {value!r}.")


class ExtendedLSTMCell(keras.layers.LSTMCell):
    """Keras' LSTM cell with peepholes, a cell clip, a projection and zoneout, each optional.

    The equations are in the docstring of `tf_blockrnn.layers.LSTMCell`.

    The weights after Keras' own are `wci`, `wcf`, `wco`, each `[units]` and initially zero, and
    `w_p`, `[projection, units]`. With a projection the state h has its width, and the recurrent
    kernel has as many rows. The derivative of the clip is taken as 1. h is computed from the
    cell state before its zoneout, and zoneout of h is applied after the projection.

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell
      >>> layer = keras.layers.RNN(ExtendedLSTMCell(4, projection=2))
      >>> tuple(layer(np.ones([1, 5, 3], "float32")).shape)
      (1, 2)
    """

    # Of a cell that was created as a Keras cell.
    use_peephole: bool = False
    cell_clip: float | None = None
    projection: int | None = None
    zoneout_h: float = 0.0
    zoneout_c: float = 0.0

    def __init__(
        self,
        *args: Any,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        projection: int | None = None,
        zoneout_h: float = 0.0,
        zoneout_c: float = 0.0,
        **kwargs: Any,
    ):
        zoneout_h = _zoneout.rate(self, "zoneout_h", zoneout_h)
        zoneout_c = _zoneout.rate(self, "zoneout_c", zoneout_c)
        check_own(self, use_peephole, cell_clip, projection)
        super().__init__(*args, **kwargs)
        self.use_peephole = bool(use_peephole)
        self.cell_clip = None if cell_clip is None else float(cell_clip)
        self.projection = None if projection is None else int(projection)
        self.zoneout_h, self.zoneout_c = zoneout_h, zoneout_c
        if self.projection is not None:
            self.state_size = [self.projection, self.units]
            self.output_size = self.projection

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        if kwargs.get("name") == "recurrent_kernel":
            kwargs["shape"] = (self.output_size, _GATES * self.units)
        return super().add_weight(*args, **kwargs)

    def build(self, input_shape):
        # Keras keeps this bound method with the instance, and the cell may have become a Keras cell
        # since then: `super()` would refuse it.
        keras.layers.LSTMCell.build(self, input_shape)
        if not isinstance(self, ExtendedLSTMCell):
            return
        if self.use_peephole:
            self.wci, self.wcf, self.wco = (
                self.add_weight(shape=(self.units,), name=name, initializer="zeros")
                for name in ("wci", "wcf", "wco")
            )
        if self.projection is not None:
            self.w_p = self.add_weight(
                shape=(self.projection, self.units), name="w_p", initializer="glorot_uniform"
            )

    def call(self, inputs, states, training=False):
        if not _fusing.own_config(self):
            return super().call(inputs, states, training=training)
        h_prev, c_prev = states
        inputs_mask = recurrent_mask = None
        if training and 0.0 < self.dropout < 1.0:
            inputs_mask = self.get_dropout_mask(inputs)
        if training and 0.0 < self.recurrent_dropout < 1.0:
            recurrent_mask = self.get_recurrent_dropout_mask(h_prev)
        z_i, z_f, z_c, z_o = self._pre_activations(
            gate_gemms(inputs, self.kernel, inputs_mask),
            gate_gemms(h_prev, self.recurrent_kernel, recurrent_mask),
        )
        if self.use_peephole:
            z_i = z_i + c_prev * self.wci
            z_f = z_f + c_prev * self.wcf
        i, f = self.recurrent_activation(z_i), self.recurrent_activation(z_f)
        c = f * c_prev + i * self.activation(z_c)
        if self.cell_clip is not None:
            c = c + ops.stop_gradient(ops.clip(c, -self.cell_clip, self.cell_clip) - c)
        if self.use_peephole:
            z_o = z_o + c * self.wco
        h = self.recurrent_activation(z_o) * self.activation(c)
        if self.projection is not None:
            h = ops.matmul(h, ops.transpose(self.w_p))
        h = _zoneout.step(self, "zoneout_h", h_prev, h, training)
        c = _zoneout.step(self, "zoneout_c", c_prev, c, training)
        return h, [h, c]

    def _pre_activations(self, x_terms: list, h_terms: list) -> list:
        sums = [x + h for x, h in zip(x_terms, h_terms, strict=True)]
        if self.bias is None:
            return sums
        biases = ops.split(self.bias, _GATES, axis=0)
        return [z + b for z, b in zip(sums, biases, strict=True)]

    def get_config(self):
        return {**super().get_config(), **_fusing.own_config(self)}


def gate_gemms(values: Any, weights: Any, masks: Any, gates: int = _GATES) -> list:
    """values · W for each gate; `masks` is one for all gates, or a list with one for each."""
    if isinstance(masks, (list, tuple)):
        columns = ops.split(weights, gates, axis=1)
        return [ops.matmul(values * m, w) for m, w in zip(masks, columns, strict=True)]
    if masks is not None:
        values = values * masks
    return ops.split(ops.matmul(values, weights), gates, axis=1)
