"""The names of Keras and tf_keras that this package uses and that are not public.

Each is in a function here that states its purpose, and has its own test
(tests/keras/test_keras_private.py, tests/legacy_keras/test_tf_keras_private.py), so that a new
version that lacks it is found at once. tf_keras itself is the last version of Keras 2.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tf_blockrnn import _loader

_NEWEST_TESTED = (3, 15)
_checked = False


def warn_if_untested(stacklevel: int) -> None:
    """Warns, once, if Keras is newer than those that the tests run on."""
    global _checked
    if _checked:
        return
    _checked = True
    import keras

    if tuple(map(int, keras.__version__.split(".")[:2])) > _NEWEST_TESTED:
        newest = ".".join(map(str, _NEWEST_TESTED))
        warnings.warn(
            f"tf_blockrnn has been tested with Keras up to {newest}, and this is Keras "
            f"{keras.__version__}. (This warning is given once.)",
            stacklevel=stacklevel + 1,
        )


# ---- both


def held_layers(layer: Any) -> list[Any]:
    """The layers that Keras, 3 or 2, tracks as held by a layer or model, without those in them."""
    return list(layer._flatten_layers(include_self=False, recursive=False))


def is_compiled_by_xla(model: Any) -> bool:
    """Whether a model, of Keras 3 or tf_keras, was compiled with jit_compile, or Keras chose it."""
    return getattr(model, "_jit_compile", None) is True


# ---- Keras 3


def flat_layers(model: Any) -> list[Any]:
    """The model and all layers that Keras tracks in it, at any depth, each once."""
    return model._flatten_layers()


def is_functional(model: Any) -> bool:
    """Whether a model was made of symbolic inputs and outputs, and so has `input`."""
    from keras.src.models.functional import Functional

    return isinstance(model, Functional)


def compiled_with(model: Any) -> dict[str, Any]:
    """The arguments of the model's `compile`, as they were given: `get_compile_config` has configs.

    Empty for a model that is not compiled, or whose class overrides how it compiles.
    """
    return getattr(getattr(model, "_compile_config", None), "config", None) or {}


def mask_of(tensor: Any) -> Any:
    """The mask that Keras attached to a tensor, the output of a layer, or None."""
    return getattr(tensor, "_keras_mask", None)


def supports_jit(is_fused: Callable[[Any], bool]) -> property:
    """A property over the attribute of Keras' layers that Keras asks before it uses XLA.

    While a layer is fused, it is true wherever XLA can compile the ops. Keras sets it to false on a
    layer that cuDNN could run, which is then ignored: on a GPU it cannot be distinguished from a
    false of the user's. The value remains in the layer's `__dict__`, where Keras finds it without
    this property.
    """

    def get(layer: Any) -> Any:
        if "supports_jit" not in vars(layer):
            raise AttributeError("supports_jit")  # its constructor has not come so far
        value = vars(layer)["supports_jit"]
        if not is_fused(layer):
            return value
        by_cudnn = bool(getattr(layer, "use_cudnn", False) and tf.config.get_visible_devices("GPU"))
        # Keras' setattr reads an attribute first, and does not set what `is` there already.
        return np.bool_((value or by_cudnn) and not _loader.missing_xla())

    def put(layer: Any, value: bool) -> None:
        vars(layer)["supports_jit"] = value

    return property(get, put)


# ---- tf_keras (Keras 2)


def tf_keras_layers() -> dict[str, tuple[tuple[type, ...], tuple[type, ...]]]:
    """For each of our layers' names, tf_keras' classes with their own `call`, and their cells.

    The layers of version 1 are those of `tf.compat.v1.keras.layers`, in graphs of TensorFlow 1.
    """
    from tf_keras.src.layers.rnn import gru, gru_v1, lstm, lstm_v1, simple_rnn

    return {
        "GRU": ((gru.GRU, gru_v1.GRU), (gru.GRUCell, gru_v1.GRUCell)),
        "LSTM": ((lstm.LSTM, lstm_v1.LSTM), (lstm.LSTMCell, lstm_v1.LSTMCell)),
        "SimpleRNN": ((simple_rnn.SimpleRNN,), (simple_rnn.SimpleRNNCell,)),
    }


def is_tf_keras_tensor(value: Any) -> bool:
    """Whether the value is a symbolic tensor of tf_keras, which need not be imported."""
    kind = type(value)
    return kind.__name__ == "KerasTensor" and kind.__module__.startswith("tf_keras.")


def has_constants(layer: Any) -> bool:
    """Whether the cell of a tf_keras layer gets constants in addition to inputs and states."""
    return bool(layer._num_constants)


def returns_runtime(layer: Any) -> bool:
    """Whether a tf_keras layer also returns which device ran it, for which Keras' tests ask."""
    return bool(getattr(layer, "_return_runtime", getattr(layer, "return_runtime", False)))


def inputs_and_states(layer: Any, inputs: Any, initial_state: Any) -> tuple[Any, list[Any]]:
    """The sequences and the initial states of a call of a tf_keras layer, as its own `call` has it.

    They come from the arguments, from a list of inputs or from a stateful layer, or are zeros.
    """
    sequences, states, _ = layer._process_inputs(inputs, initial_state, None)
    return sequences, states


def could_use_cudnn(layer: Any) -> bool:
    """Whether cuDNN could run a tf_keras layer, which then drops inputs differently."""
    return bool(getattr(layer, "_could_use_gpu_kernel", False))


def reset_cell_dropout_masks(layer: Any) -> None:
    """Lets the cell of a tf_keras layer draw new masks, as the layer's own `call` does first."""
    layer._maybe_reset_cell_dropout_mask(layer.cell)
