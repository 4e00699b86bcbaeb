"""Copies the state of a Keras layer to another one that was created from its config."""

from __future__ import annotations

import tempfile
from typing import Any

import keras


def copy_state(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies a layer's own state, without that of its parts, by Keras' saving methods.

    Example:
      >>> import keras, numpy as np
      >>> from tf_blockrnn._copy_state import copy_state
      >>> original, copy = keras.layers.Dense(2), keras.layers.Dense(2)
      >>> original.build((None, 3)), copy.build((None, 3))
      (None, None)
      >>> copy_state(original, copy)
      >>> bool(np.all(original.kernel == copy.kernel))
      True
    """
    copy._trainable = original._trainable  # The public setter would also set all parts.
    copy_flags(original, copy)
    if copy.dtype_policy != original.dtype_policy:
        copy.dtype_policy = original.dtype_policy
    variables: dict[str, Any] = {}
    original.save_own_variables(variables)
    if variables:
        copy.load_own_variables(variables)
    _copy_variables(original, copy)
    if hasattr(original, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            original.save_assets(folder)
            copy.load_assets(folder)
    _copy_seeds(original, copy)
    if isinstance(original, keras.layers.RNN):
        # The states of a stateful layer, which Keras neither counts as variables nor saves.
        states, state_copies = (keras.tree.flatten(layer.states) for layer in (original, copy))
        for state, state_copy in zip(states, state_copies, strict=True):
            if state is not None:
                state_copy.assign(state)


def copy_flags(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies the attributes that may be set on every layer and are not in its config."""
    for name in ("_supports_masking", "autocast"):
        if getattr(copy, name) != getattr(original, name):
            setattr(copy, name, getattr(original, name))


def _copy_variables(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies the values and attributes of the layer's own variables.

    Keras' methods load LoRA's factors as zeros, because they save their product in the kernel.
    """
    own, own_copies = _own_variables(original), _own_variables(copy)
    if [v.name for v in own] != [v.name for v in own_copies]:
        return  # copy_model detects and reports it.
    for variable, variable_copy in zip(own, own_copies, strict=True):
        variable_copy.assign(variable)
        variable_copy.trainable = variable.trainable
        variable_copy.regularizer = _counterpart(variable.regularizer, original, copy)
        variable_copy.constraint = _counterpart(variable.constraint, original, copy)
    if hasattr(original, "lora_alpha"):
        copy.lora_alpha = original.lora_alpha  # Dense and Embedding do not restore it in build().


def _own_variables(layer: keras.Layer) -> list[keras.Variable]:
    """The layer's own variables, sorted by name: quantize() creates them in another order."""
    own = layer._trainable_variables + layer._non_trainable_variables
    return sorted(own, key=lambda variable: variable.name)


def _counterpart(value: Any, original: keras.Layer, copy: keras.Layer) -> Any:
    """The copy's attribute that corresponds to an attribute of the original, or the value."""
    for name, attribute in vars(original).items():
        if attribute is value and value is not None:
            return getattr(copy, name, value)
    return value


def _copy_seeds(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies the states of seed generators.

    Layers like Keras' Dropout create one only for a rate above 0, and the rate may have been
    another when the original was created. One that only the copy has is not changed.
    """
    for name, seed in vars(original).items():
        if isinstance(seed, keras.random.SeedGenerator) and getattr(copy, name, None) is None:
            locked = copy._tracker.locked
            copy._tracker.unlock()
            setattr(copy, name, keras.random.SeedGenerator.from_config(seed.get_config()))
            copy._tracker.locked = locked
    seeds, seed_copies = original._seed_generators, copy._seed_generators
    if seeds and len(seeds) != len(seed_copies):
        raise ValueError(
            f"layer {original.name!r} has {len(seeds)} seed generators, and {len(seed_copies)} "
            "when created again from its config"
        )
    for seed, seed_copy in zip(seeds, seed_copies, strict=False):
        seed_copy.state.assign(seed.state)
