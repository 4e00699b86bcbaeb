"""The state of a Keras layer, copied to another that was made from its config."""

from __future__ import annotations

import tempfile
from typing import Any

import keras


def copy_state(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies all but the parts' own, through the methods by which Keras saves it."""
    copy._trainable = original._trainable  # Set without the underscore it would go to all parts.
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
        # Of a stateful layer; Keras neither counts them as variables nor saves them.
        states, state_copies = (keras.tree.flatten(layer.states) for layer in (original, copy))
        for state, state_copy in zip(states, state_copies, strict=True):
            if state is not None:
                state_copy.assign(state)


def copy_flags(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies what may be set on every layer and is in no config."""
    for name in ("_supports_masking", "autocast"):
        if getattr(copy, name) != getattr(original, name):
            setattr(copy, name, getattr(original, name))


def _copy_variables(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies the layer's own variables as they are, and what each says of itself.

    Keras' methods load LoRA's factors as zeros, because they have saved the product in the kernel.
    """
    own, own_copies = _own_variables(original), _own_variables(copy)
    if [v.name for v in own] != [v.name for v in own_copies]:
        return  # copy_model finds and tells it.
    for variable, variable_copy in zip(own, own_copies, strict=True):
        variable_copy.assign(variable)
        variable_copy.trainable = variable.trainable
        variable_copy.regularizer = _counterpart(variable.regularizer, original, copy)
        variable_copy.constraint = _counterpart(variable.constraint, original, copy)
    if hasattr(original, "lora_alpha"):
        copy.lora_alpha = original.lora_alpha  # Dense and Embedding do not build with it.


def _own_variables(layer: keras.Layer) -> list[keras.Variable]:
    """Those that are not its parts', by name: quantize() makes them in an order of its own."""
    own = layer._trainable_variables + layer._non_trainable_variables
    return sorted(own, key=lambda variable: variable.name)


def _counterpart(value: Any, original: keras.Layer, copy: keras.Layer) -> Any:
    """What the copy has in the place of an attribute of the original; without one the value."""
    for name, attribute in vars(original).items():
        if attribute is value and value is not None:
            return getattr(copy, name, value)
    return value


def _copy_seeds(original: keras.Layer, copy: keras.Layer) -> None:
    """Copies the states of seed generators.

    Keras' Dropout and its like make one only for a rate above 0, and the rate may have been another
    when the original was made. One that only the copy has stays as it is.
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
            "when made again from its config"
        )
    for seed, seed_copy in zip(seeds, seed_copies, strict=False):
        seed_copy.state.assign(seed.state)
