"""Copies of Keras models, with their state, compiled configuration and optimizer.

Sequential and functional models are cloned by `keras.models.clone_model`, nested ones too; every
other layer and model is created again from its config. The state is copied last, when everything is
built. A copy is compared with the original: one that would not be equal is an error.
"""

from __future__ import annotations

import types
from typing import Any

import keras
from keras.src.models.functional import Functional

from tf_blockrnn._copy_state import copy_state

_GATED = (keras.layers.GRU, keras.layers.LSTM, keras.layers.GRUCell, keras.layers.LSTMCell)
_KNOWN_PACKAGES = ("keras", "tf_blockrnn", "builtins")
# Functions that Keras itself stores on layers and models.
_MADE_BY_KERAS = ("build", "quantize", "train_function", "test_function", "predict_function")
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
            copy = _Cloner().clone(model)
            if model.built and not copy.built:
                copy.build_from_config(model.get_build_config())
                copy.built = True  # build_from_config does not set it for a model.
            pairs = _pairs(model, copy)
            for pair in pairs:
                copy_state(*pair)
            _check_equal(model, copy, pairs)
            _copy_compiled(model, copy)
    except Exception as error:  # what users' constructors raise too
        raise ValueError(
            f"{function}: model {model.name!r} cannot be copied: {error} {hint}"
        ) from error
    return copy


class _Cloner:
    """Creates layers again, each once."""

    def __init__(self):
        self._copies: dict[int, Any] = {}  # by the id of the original, which preserves sharing

    def clone(self, original: Any) -> Any:
        """The copy of a layer, a model or an operation of a functional model; not always built."""
        if id(original) not in self._copies:
            self._copies[id(original)] = self._made(original)
        return self._copies[id(original)]

    def _made(self, original: Any) -> Any:
        if isinstance(original, (keras.Sequential, Functional)):
            inputs = None
            if isinstance(original, Functional):
                # Inputs created by clone_model would have other names.
                inputs = keras.tree.map_structure(
                    lambda tensor: self.clone(tensor._keras_history.operation).output,
                    original.input,
                )
            copy = keras.models.clone_model(original, inputs, clone_function=self.clone)
            if type(copy) is type(original):
                return copy
        config = original.get_config()
        if isinstance(original, _GATED):
            # Arguments that Keras omits from the config.
            cell = getattr(original, "cell", original)
            for name, owner in (("implementation", cell), ("use_cudnn", original)):
                if name in vars(owner):  # else it is no argument
                    config[name] = getattr(owner, name)
        return type(original).from_config(config)


def _custom_objects(model: keras.Model) -> dict[str, Any]:
    """The model's own classes and functions, under the names by which Keras looks for them."""
    compiled = getattr(getattr(model, "_compile_config", None), "config", None)
    found: dict[str, Any] = {}
    objects = [type(layer) for layer in model._flatten_layers()]
    for layer in model._flatten_layers():
        for name, value in vars(layer).items():
            if not name.startswith("_"):
                objects += [part for part in _flat(value) if isinstance(part, types.FunctionType)]
    for value in _flat(compiled):
        if isinstance(value, types.FunctionType):
            objects.append(value)
        elif hasattr(type(value), "get_config"):
            objects.append(type(value))
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


def _pairs(model: keras.Model, copy: keras.Model) -> list[tuple[keras.Layer, keras.Layer]]:
    """Each layer and its copy, which gets the layer's class.

    A constructor creates Keras' layers, or those of this package, also where they were exchanged
    for the others in the original.
    """
    mine, its = model._flatten_layers(), copy._flatten_layers()
    if len(mine) != len(its):
        raise ValueError(f"created again, it has {len(its)} layers instead of {len(mine)}.")
    for layer, made in zip(mine, its, strict=True):
        kinds = type(layer), type(made)
        if any(cls.__module__.startswith("tf_blockrnn.layers") for cls in kinds) and (
            issubclass(kinds[0], kinds[1]) or issubclass(kinds[1], kinds[0])
        ):
            object.__setattr__(made, "__class__", kinds[0])
        if type(layer) is not type(made):
            raise ValueError(f"created again, layer {layer.name!r} is of {kinds[1].__name__}.")
        if made.name != layer.name:
            made.name = layer.name  # that Keras made up, in the constructor of another layer
    return list(zip(mine, its, strict=True))


def _check_equal(
    model: keras.Model, copy: keras.Model, pairs: list[tuple[keras.Layer, keras.Layer]]
) -> None:
    """Checks what no config needs to contain: variables, functions and plain values.

    Raises:
      ValueError: something differs.
    """
    for original, made in pairs:
        mine, its = (_described(layer) for layer in (original, made))
        if mine != its:
            raise ValueError(
                f"layer {original.name!r} has the weights {mine}, and {its} when created again "
                "from its config."
            )
        custom = type(original).__module__.split(".")[0] not in _KNOWN_PACKAGES
        for name, value in vars(original).items():
            other = vars(made).get(name)
            if name.startswith("_") or name in _MADE_BY_KERAS:
                continue
            is_function = isinstance(value, types.FunctionType)
            plain = custom and isinstance(value, _PLAIN_VALUES)
            # Plain values are compared by repr, because a NaN is not equal to itself.
            differs = value is not other if is_function else plain and repr(value) != repr(other)
            lost = isinstance(value, keras.Layer) and other is None
            if differs or lost:
                raise ValueError(
                    f"{original.name}.{name} is {value!r}, in the copy {other!r}; the config does "
                    "not contain it."
                )
    if len(model.weights) != len(copy.weights):
        raise ValueError(
            f"it has {len(model.weights)} weights, and {len(copy.weights)} when created again."
        )


def _described(layer: keras.Layer) -> list[str]:
    return [
        f"{weight.name} {tuple(weight.shape)}{' trainable' * weight.trainable}"
        for weight in layer.weights
    ]


def _copy_compiled(model: keras.Model, copy: keras.Model) -> None:
    if not model.compiled:
        return
    # Repeated after clone_model: the trainable variables are known only now.
    copy.compile_from_config(model.get_compile_config())
    if not copy.compiled:
        raise ValueError("its own compile() needs get_compile_config and compile_from_config.")
    if model.optimizer is None or not model.optimizer.built:
        return
    if not copy.optimizer.built:
        copy.optimizer.build(copy.trainable_variables)
    mine, its = model.optimizer.variables, copy.optimizer.variables
    if [tuple(v.shape) for v in mine] != [tuple(v.shape) for v in its]:
        raise ValueError("its optimizer has variables for other weights than the copy has.")
    for variable, variable_copy in zip(mine, its, strict=True):
        variable_copy.assign(variable)
