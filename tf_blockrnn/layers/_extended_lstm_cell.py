"""A Keras LSTM cell with more than Keras' own has, in Keras' own operations."""

import numbers
from typing import Any

import keras
from keras import ops

from tf_blockrnn.layers import _fusing, _zoneout

_GATES = 4


def _check_positive(name: str, value: float | None, kind: type, kind_name: str) -> None:
    # `value > 0` also refuses a NaN.
    if value is None or (isinstance(value, kind) and not isinstance(value, bool) and value > 0):
        return
    raise ValueError(f"{name} must be {kind_name} above 0, or None; got {value!r}.")


class ExtendedLSTMCell(keras.layers.LSTMCell):
    """Keras' LSTM cell with peepholes, a cell clip, a projection and zoneout, each optional.

        i = sigmoid(x W_i + h_prev R_i + b_i [+ c_prev * wci])
        f = sigmoid(x W_f + h_prev R_f + b_f [+ c_prev * wcf])
        c = f * c_prev + i * tanh(x W_c + h_prev R_c + b_c), clipped to +-cell_clip
        o = sigmoid(x W_o + h_prev R_o + b_o [+ c * wco])
        h = o * tanh(c), or with a projection w_p (o * tanh(c))

    (Gers, Schraudolph, Schmidhuber 2002; Sak, Senior, Beaufays 2014, arXiv:1402.1128.)

    The weights after Keras' own are `wci`, `wcf`, `wco`, each `[units]` and initially zero, and
    `w_p`, `[projection, units]`. With a projection the state h has its width, and the recurrent
    kernel has as many rows. The clip is straight-through: its derivative counts as 1. Zoneout of
    the cell state comes after h is made of it, that of h after the projection.

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
    zoneout_state: float = 0.0
    zoneout: float = 0.0

    def __init__(
        self,
        units: int,
        activation: _fusing.Activation = "tanh",
        recurrent_activation: _fusing.Activation = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: _fusing.Initializer = "glorot_uniform",
        recurrent_initializer: _fusing.Initializer = "orthogonal",
        bias_initializer: _fusing.Initializer = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: _fusing.Regularizer = None,
        recurrent_regularizer: _fusing.Regularizer = None,
        bias_regularizer: _fusing.Regularizer = None,
        kernel_constraint: _fusing.Constraint = None,
        recurrent_constraint: _fusing.Constraint = None,
        bias_constraint: _fusing.Constraint = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: int | None = None,
        *,
        use_peephole: bool = False,
        cell_clip: float | None = None,
        projection: int | None = None,
        zoneout_state: float = 0.0,
        zoneout: float = 0.0,
        **kwargs: Any,
    ):
        zoneout_state = _zoneout.rate(self, "zoneout_state", zoneout_state)
        zoneout = _zoneout.rate(self, "zoneout", zoneout)
        _check_positive("cell_clip", cell_clip, numbers.Real, "a number")
        _check_positive("projection", projection, numbers.Integral, "an integer")
        super().__init__(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            **kwargs,
        )
        self.use_peephole = bool(use_peephole)
        self.cell_clip = None if cell_clip is None else float(cell_clip)
        self.projection = None if projection is None else int(projection)
        self.zoneout_state, self.zoneout = zoneout_state, zoneout
        if self.projection is not None:
            self.state_size = [self.projection, self.units]
            self.output_size = self.projection

    @property
    def extended(self) -> bool:
        """Whether any of the features that Keras' cell lacks is in use."""
        return bool(
            self.use_peephole
            or self.cell_clip
            or self.projection
            or self.zoneout_state
            or self.zoneout
        )

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
        if not self.extended:
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
        h = _zoneout.step(self, "zoneout_state", h_prev, h, training)
        c = _zoneout.step(self, "zoneout", c_prev, c, training)
        return h, [h, c]

    def _pre_activations(self, x_terms: list, h_terms: list) -> list:
        sums = [x + h for x, h in zip(x_terms, h_terms, strict=True)]
        if self.bias is None:
            return sums
        biases = ops.split(self.bias, _GATES, axis=0)
        return [z + b for z, b in zip(sums, biases, strict=True)]

    def get_config(self):
        # Our arguments only when they are in use, so that keras.layers.LSTMCell accepts the config
        # of a plain cell.
        return {**super().get_config(), **extra_config(self)}


def extra_config(cell: ExtendedLSTMCell) -> dict[str, Any]:
    """The arguments in use that Keras' LSTM does not have."""
    config = {}
    if cell.use_peephole:
        config["use_peephole"] = True
    if cell.cell_clip is not None:
        config["cell_clip"] = cell.cell_clip
    if cell.projection is not None:
        config["projection"] = cell.projection
    return {**config, **_zoneout.config(cell)}


def gate_gemms(values: Any, weights: Any, masks: Any, gates: int = _GATES) -> list:
    """values · W for each gate; `masks` is one for all gates, or a list with one for each."""
    if isinstance(masks, (list, tuple)):
        columns = ops.split(weights, gates, axis=1)
        return [ops.matmul(values * m, w) for m, w in zip(masks, columns, strict=True)]
    if masks is not None:
        values = values * masks
    return ops.split(ops.matmul(values, weights), gates, axis=1)
