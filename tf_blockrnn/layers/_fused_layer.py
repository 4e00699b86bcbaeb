"""Base of the fused layers: a Keras layer whose call runs on the op where the op supports it."""

import inspect
import sys
from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn import _keras_private
from tf_blockrnn._ops import sequence_util
from tf_blockrnn.layers import _fused_call, _fusing, _resets
from tf_blockrnn.layers._like_keras import by_name


def of_cell(name: str, unused: Any) -> property:
    """A property of a layer: an attribute of its cell, or its value where the cell lacks it."""
    return property(lambda layer: getattr(layer.cell, name, unused))


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

    def _construct(
        self, args: tuple, kwargs: dict[str, Any], own: dict[str, Any], recompute: bool | int
    ) -> None:
        """What the constructors of the layers do.

        Args:
          args, kwargs: for the constructor of Keras' layer.
          own: arguments of the cell that Keras' lacks. With one the cell is of the class in the
            spec that takes them.
          recompute: as of the layers.

        Raises:
          TypeError: recompute is neither a bool nor a number.
          ValueError: recompute is not above 0; use_cudnn is True together with own arguments.
        """
        if own:
            self._construct_around_own_cell(own, by_name(self._SPEC.keras_class, args, kwargs))
        else:
            super().__init__(*args, **kwargs)
        sequence_util.recompute_attr(type(self).__name__, recompute)
        if recompute:
            self.recompute = recompute if isinstance(recompute, bool) else int(recompute)

    def _construct_around_own_cell(self, own: dict[str, Any], given: dict[str, Any]) -> None:
        """Does what Keras' constructor does, with a cell of another class."""
        keras_class = self._SPEC.keras_class
        use_cudnn = given.pop("use_cudnn", "auto")
        if use_cudnn not in ("auto", False):
            raise ValueError(
                f"use_cudnn={use_cudnn!r} was given together with {', '.join(own)}. Keras has no "
                'cuDNN path with these: it must be "auto" or False.'
            )
        keras_cell = getattr(keras.layers, f"{keras_class.__name__}Cell")
        known = inspect.signature(keras_cell.__init__).parameters
        cell = self._SPEC.own_cell(
            **{name: given.pop(name) for name in list(given) if name in known},
            **own,
            dtype=given.get("dtype"),
            trainable=given.get("trainable", True),
            name=f"{keras_class.__name__.lower()}_cell",
            implementation=given.pop("implementation", 2),
        )
        # Past the constructor of Keras' layer, which creates Keras' cell.
        super(keras_class, self).__init__(cell, **given)
        self.input_spec = keras.InputSpec(ndim=3)

    @property
    def use_cudnn(self) -> bool | str:
        """As of Keras' layer; False with a cell of our own.

        Keras' cuDNN path reads three weights of the cell and would ignore all else; and
        keras.layers.Bidirectional copies one direction's value to the other.
        """
        if "cell" in vars(self) and type(self.cell) is self._SPEC.own_cell:
            return False
        if "use_cudnn" not in vars(self):
            raise AttributeError("use_cudnn")  # Keras' layer has none, or not yet
        return vars(self)["use_cudnn"]

    @use_cudnn.setter
    def use_cudnn(self, value: bool | str) -> None:
        # Where Keras' layer has it, so that a layer may change its class.
        vars(self)["use_cudnn"] = value

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
        config = {**super().get_config(), **_fusing.own_config(self)}
        return {**config, "recompute": self.recompute} if self.recompute else config

    supports_jit = _keras_private.supports_jit(lambda layer: layer.fused)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if "tf_keras" in sys.modules:
            _fusing.refuse_legacy_tensors(self, (*args, *kwargs.values()))
        resets = kwargs.get("resets", args[4] if len(args) > 4 else None)
        if resets is not None:
            if not isinstance(resets, tf.Tensor):
                # Symbolic ones do not get to `call`, and Keras' own conversion does not name them.
                _resets.checked(self, args[0] if args else kwargs.get("sequences"), resets)
            self._uses_resets = True  # which Keras' own layer could not
        return super().__call__(*args, **kwargs)

    def call(self, sequences, initial_state=None, mask=None, training=False, resets=None):
        _fused_call.check_not_training(self, training)
        return _fused_call.fused_or_keras(
            self,
            self._SPEC,
            self.why_not_fused,
            super().call,
            sequences,
            initial_state=initial_state,
            mask=mask,
            training=training,
            resets=resets,
        )
