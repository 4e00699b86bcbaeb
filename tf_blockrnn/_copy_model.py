"""Copies of Keras models, with their state, compiled configuration and optimizer.

Keras serializes and recreates a model; then the state of each layer is copied. The copy is compared
with the original, layer by layer, and a difference is an error.
"""

from __future__ import annotations

import tempfile
import types
from typing import Any

import keras

from tf_blockrnn import _keras_private

_KNOWN_PACKAGES = ("keras", "tf_blockrnn", "builtins")
# Attributes of Keras' layers and cells that a config need not have; the constructor of a cell sets
# dropout_mask_count by its implementation.
_NOT_IN_CONFIGS = (
    *("implementation", "dropout_mask_count", "use_cudnn", "supports_jit"),
    *("autocast", "lora_alpha"),
)
# What Keras itself stores on layers and models, when they are called, trained or evaluated.
_MADE_BY_KERAS = (
    *("build", "quantize", "train_function", "test_function", "predict_function"),
    *("stop_training", "stop_evaluating", "stop_predicting"),
)
_PLAIN_VALUES = (bool, int, float, str, type(None))


def copy_model(
    function: str, model: keras.Model, hint: str = "Change it in place, with copy=False."
) -> keras.Model:
    """Copies a model with its state, compiled configuration and optimizer.

    Args:
      function: the public function that copies, for errors.
      model: the original, which is not changed.
      hint: the end of the error, what to do instead.

    Returns:
      The copy, of the type of the original.

    Raises:
      ValueError: the model cannot be created again from its config, or its copy would differ.
    """
    try:
        with keras.saving.custom_object_scope(_custom_objects(model)):
            config = keras.saving.serialize_keras_object(model)
            made = keras.saving.deserialize_keras_object(config, safe_mode=False)
            pairs = _pairs(model, made)
            for pair in pairs:
                _copy_attributes(*pair)
            _copy_state(pairs)
            _check_equal(pairs)
            _copy_compiled(model, made)
    except Exception as error:  # what users' constructors raise too
        raise ValueError(
            f"{function}: model {model.name!r} cannot be copied: {error} {hint}"
        ) from error
    return made


def _custom_objects(model: keras.Model) -> dict[str, Any]:
    """The model's own classes and functions, under the names by which Keras finds them."""
    objects: list[Any] = []
    for layer in _keras_private.flat_layers(model):
        objects.append(type(layer))
        public = {name: value for name, value in vars(layer).items() if not name.startswith("_")}
        objects += [part for part in _flat(public) if isinstance(part, types.FunctionType)]
    for value in _flat(_keras_private.compiled_with(model)):
        if isinstance(value, types.FunctionType):
            objects.append(value)
        elif hasattr(type(value), "get_config"):
            objects.append(type(value))
    found: dict[str, Any] = {}
    for named in objects:
        if (named.__module__ or "").split(".")[0] in _KNOWN_PACKAGES:
            continue
        name = keras.saving.get_registered_name(named)
        if found.setdefault(name, named) is not named:
            raise ValueError(f"two classes or functions have the name {name!r}.")
    return found


def _flat(value: Any) -> list[Any]:
    """The values in lists, tuples and dicts, whose keys may be of any kind."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return [value]
    return [part for each in value for part in _flat(each)]


def _pairs(model: keras.Model, made: keras.Model) -> list[tuple[keras.Layer, keras.Layer]]:
    """Each layer and its copy, which gets the layer's class.

    A constructor creates Keras' layers, or those of this package, also where they were exchanged
    for the others in the original.
    """
    mine, its = _keras_private.flat_layers(model), _keras_private.flat_layers(made)
    if len(mine) != len(its):
        raise ValueError(f"created again, it has {len(its)} layers instead of {len(mine)}.")
    for layer, copied in zip(mine, its, strict=True):
        kinds = type(layer), type(copied)
        if any(cls.__module__.startswith("tf_blockrnn.layers") for cls in kinds) and (
            issubclass(kinds[0], kinds[1]) or issubclass(kinds[1], kinds[0])
        ):
            object.__setattr__(copied, "__class__", kinds[0])
        if type(layer) is not type(copied):
            raise ValueError(f"created again, layer {layer.name!r} is of {kinds[1].__name__}.")
    return list(zip(mine, its, strict=True))


def _copy_attributes(layer: keras.Layer, copied: keras.Layer) -> None:
    """Copies what may be set on every layer and is not in its config."""
    if copied.name != layer.name:
        copied.name = layer.name  # that Keras made up, in the constructor of another layer
    for name in ("trainable", "supports_masking", "dtype_policy"):
        if getattr(copied, name) != getattr(layer, name):
            setattr(copied, name, getattr(layer, name))  # of `trainable`, the parts come later
    for name in _NOT_IN_CONFIGS:
        if name in vars(layer):
            setattr(copied, name, vars(layer)[name])


def _copy_state(pairs: list[tuple[keras.Layer, keras.Layer]]) -> None:
    """Copies variables, those that Keras does not save too, and assets such as vocabularies.

    Raises:
      ValueError: a layer and its copy have other variables.
    """
    copied_already: set[int] = set()
    for layer, copied in reversed(pairs):  # the parts first, so that an error names them
        mine, its = _variables(layer), _variables(copied)
        if list(map(_described, mine)) != list(map(_described, its)):
            raise ValueError(
                f"layer {layer.name!r} has the variables {list(map(_described, mine))}, and "
                f"{list(map(_described, its))} when created again from its config."
            )
        own: dict[str, Any] = {}
        layer.save_own_variables(own)
        if own:
            copied.load_own_variables(own)
        if hasattr(layer, "save_assets"):
            with tempfile.TemporaryDirectory() as folder:
                layer.save_assets(folder)
                copied.load_assets(folder)
        for value, variable in zip(mine, its, strict=True):
            if id(value) not in copied_already:
                copied_already.add(id(value))
                variable.assign(value)
                variable.trainable = value.trainable


def _variables(layer: keras.Layer) -> list[keras.Variable]:
    """The variables of a layer and its parts, those of each name in the order of the layers.

    quantize() creates them in another order than a constructor.
    """
    states = keras.tree.flatten(layer.states) if isinstance(layer, keras.layers.RNN) else []
    held = [*layer.variables, *(state for state in states if state is not None)]
    return sorted(held, key=lambda variable: variable.name)


def _described(variable: keras.Variable) -> tuple[Any, ...]:
    parts = (variable.regularizer, variable.constraint)
    return variable.name, tuple(variable.shape), variable.dtype, *map(type, parts)


def _check_equal(pairs: list[tuple[keras.Layer, keras.Layer]]) -> None:
    """Checks what no config needs to contain: functions, layers and plain values.

    Raises:
      ValueError: something differs.
    """
    for layer, copied in pairs:
        custom = type(layer).__module__.split(".")[0] not in _KNOWN_PACKAGES
        for name, value in vars(layer).items():
            if name.startswith("_") or name in _MADE_BY_KERAS:
                continue
            other = vars(copied).get(name)
            is_function = isinstance(value, types.FunctionType)
            plain = custom and isinstance(value, _PLAIN_VALUES)
            # Plain values are compared by repr, because a NaN is not equal to itself.
            differs = value is not other if is_function else plain and repr(value) != repr(other)
            lost = isinstance(value, keras.Layer) and other is None
            if differs or lost:
                raise ValueError(
                    f"{layer.name}.{name} is {value!r}, in the copy {other!r}; the config does "
                    "not contain it."
                )


def _copy_compiled(model: keras.Model, made: keras.Model) -> None:
    """Compiles the copy and copies the state of the optimizer.

    Raises:
      ValueError: the class overrides how it compiles; the optimizer has other variables.
    """
    if not model.compiled:
        return
    # Again: the trainable variables are known only now.
    made.compile_from_config(model.get_compile_config())
    if not made.compiled:
        raise ValueError("its own compile() needs get_compile_config and compile_from_config.")
    if model.optimizer is None or not model.optimizer.built:
        return
    if not made.optimizer.built:
        made.optimizer.build(made.trainable_variables)
    mine, its = model.optimizer.variables, made.optimizer.variables
    if [tuple(v.shape) for v in mine] != [tuple(v.shape) for v in its]:
        raise ValueError("its optimizer has variables for other weights than the copy has.")
    for value, variable in zip(mine, its, strict=True):
        variable.assign(value)
