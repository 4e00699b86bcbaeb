"""Base of the fused layers: a Keras layer whose call runs on the op where the op supports it."""

import sys
from typing import Any

from tf_blockrnn._ops import sequence_util, xla
from tf_blockrnn.layers import _fused_call, _fusing


def use_cudnn_of(extended: type) -> property:
    """The property `use_cudnn` of a layer: false where its cell is of that class.

    Keras' cuDNN path reads three weights of the cell and would ignore all else; and
    keras.layers.Bidirectional copies one direction's value to the other.
    """

    def get(layer: Any) -> bool | str:
        if "use_cudnn" not in vars(layer):
            raise AttributeError("use_cudnn")  # the constructor has not come so far
        return vars(layer)["use_cudnn"] if type(layer.cell) is not extended else False

    def put(layer: Any, value: bool | str) -> None:
        # Where Keras' layer has it, so that a layer may change its class.
        vars(layer)["use_cudnn"] = value

    return property(get, put)


def without_cudnn(use_cudnn: bool | str, arguments: str) -> bool | str:
    """The argument `use_cudnn` of a layer that has some of the arguments listed.

    Raises:
      ValueError: it is True.
    """
    if use_cudnn not in ("auto", False):
        raise ValueError(
            f"use_cudnn={use_cudnn!r} was given together with {arguments}. Keras has no cuDNN path "
            'with these: it must be "auto" or False.'
        )
    return use_cudnn


class FusedLayer:
    """Mixin over a Keras recurrent layer that uses the fused op where it supports the layer.

    A subclass defines `_SPEC`. It needs no attribute that Keras' layer lacks, so a layer can become
    one, and stop being one, by assigning its `__class__`.

    Example:
      >>> from tf_blockrnn import layers
      >>> layers.LSTM(4, recurrent_dropout=0.1).why_not_fused is None
      True
    """

    _SPEC: _fused_call.LayerSpec
    # Of the class, for a layer whose class was assigned.
    recompute: bool | int = False

    def _finish_init(self, recompute: bool | int) -> None:
        """To be called at the end of a layer's constructor.

        Raises:
          ValueError: recompute is neither a bool nor a number above 0.
        """
        sequence_util.recompute_attr(type(self).__name__, recompute)
        if recompute:
            self.recompute = recompute if isinstance(recompute, bool) else int(recompute)
        reason = self.why_not_fused
        if reason:
            _fusing.warn_once(self, "layer", reason, stacklevel=3)

    @property
    def fused(self) -> bool:
        """Whether this layer runs on the fused op."""
        return self.why_not_fused is None

    @property
    def why_not_fused(self) -> str | None:
        """The reason why this layer uses Keras' own operations, or None if it runs on the op."""
        return _fused_call.why_not_fused(self, self._SPEC)

    def get_config(self):
        # Our arguments only when they are in use, so that Keras' layer accepts the config of a
        # plain layer.
        config = super().get_config()
        return {**config, "recompute": self.recompute} if self.recompute else config

    supports_jit = _fused_call.supports_jit(lambda layer: layer.fused)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "tf_keras" in sys.modules:
            _fusing.refuse_legacy_tensors(self, (*args, *kwargs.values()))
        return super().__call__(*args, **kwargs)

    def call(self, sequences, initial_state=None, mask=None, training=False):
        _fused_call.check_dense(self, sequences)
        _fused_call.check_not_training(self, training)
        without_ops = _fused_call.is_without_ops()
        reason = None if without_ops else self.why_not_fused or xla.why_not_here()
        if reason:
            _fusing.warn_once(self, "layer", reason, stacklevel=2)
        if without_ops or reason or _fused_call.keras_raises(self, sequences):
            return super().call(
                sequences, initial_state=initial_state, mask=mask, training=training
            )
        return _fused_call.call(self, self._SPEC, sequences, initial_state, mask, training)
