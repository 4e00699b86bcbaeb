"""Copies of Keras models in which some layers have another class.

`keras.models.clone_model` copies the models whose graph Keras knows: Sequential and functional
models, including nested ones. Other objects with layers (wrappers, custom layers, subclassed
models) are created again from their config, and their parts are exchanged for copies. All other
layers are copied by their config as a whole. The state is copied last, when everything is built.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src.models.functional import Functional
from keras.src.saving.serialization_lib import SerializableDict

from tf_blockrnn._copy_state import copy_flags, copy_state

_GATED = (keras.layers.GRU, keras.layers.LSTM, keras.layers.GRUCell, keras.layers.LSTMCell)
_KNOWN_PACKAGES = ("keras", "tf_blockrnn")
_PLAIN_VALUES = (bool, int, float, str, type(None))

# The class of a layer's copy, or None for a layer whose class does not change.
ClassOf = Callable[[keras.Layer], type | None]


def copy_model(model: keras.Model, class_of: ClassOf) -> keras.Model:
    """Copies a model with its state and its compiled configuration.

    Args:
      model: the original, which is not changed.
      class_of: returns the class of the copy of a recurrent layer or cell.

    Returns:
      The copy, of the type of the original.

    Raises:
      ValueError: the model, or a part of it, cannot be created again from its config.
    """
    with _found_by_name(model):
        copier = _Copier(model, class_of)
        copy = copier.copy(model)
        copier.build()
        for pair in copier.states():
            copy_state(*pair)
        _check_variables(model, copy)
        _compile_like(model, copy)
    _warn_of_values(copier.states())
    return copy


def recreate(cls: type, layer: keras.Layer) -> keras.Layer:
    """Creates a layer of the given class from the config of the given one, not built.

    Example:
      >>> import keras
      >>> from tf_blockrnn import layers
      >>> from tf_blockrnn._copy_model import recreate
      >>> layer = recreate(layers.GRU, keras.layers.GRU(4, name="gru"))
      >>> layer.name, layer.units, layer.fused
      ('gru', 4, True)
    """
    config = layer.get_config()
    if isinstance(layer, _GATED) and cls.__module__.split(".")[0] in _KNOWN_PACKAGES:
        # Arguments that Keras omits from the config.
        cell = getattr(layer, "cell", layer)
        for name, owner in (("implementation", cell), ("use_cudnn", layer)):
            if hasattr(owner, name):
                config[name] = getattr(owner, name)
    made = cls.from_config(config)
    copy_flags(layer, made)  # Before a call, which would warn that a mask is lost.
    return made


class _Pair(NamedTuple):
    original: keras.Layer
    copy: keras.Layer
    by_config: bool  # Created from one config with all its parts, which correspond by position.


class _Copier:
    """The state of one copy operation."""

    def __init__(self, model: keras.Model, class_of: ClassOf):
        self._class_of = functools.cache(class_of)
        self._originals = {id(layer) for layer in model._flatten_layers()}
        self._copies: dict[int, Any] = {}  # By the id of the original, which preserves sharing.
        self._pairs: list[_Pair] = []  # A part precedes the object that contains it.
        self._holders: list[tuple[keras.Layer, keras.Layer]] = []
        self._misuses: list[str] = []  # Errors of calls of parts that have been exchanged.

    def copy(self, original: Any) -> Any:
        """The copy of a layer, a model or an operation of a functional model; not always built."""
        if id(original) not in self._copies:
            self._copies[id(original)] = self._made(original)
        return self._copies[id(original)]

    def _made(self, original: Any) -> Any:
        if isinstance(original, (keras.Sequential, Functional)):
            return self._cloned(original)
        if not isinstance(original, keras.Layer):
            return type(original).from_config(original.get_config())
        cls = self._class_of(original)
        if cls is None and self._holds(original):
            return self._copied_holder(original)
        copy = recreate(cls or type(original), original)
        self._pairs.append(_Pair(original, copy, by_config=True))
        return copy

    def _holds(self, layer: keras.Layer) -> bool:
        """Whether a layer contains layers whose class changes."""
        if isinstance(layer, keras.layers.RNN) and type(layer) is not keras.layers.RNN:
            return False  # It creates its cell itself.
        return any(self._class_of(part) is not None or self._holds(part) for part in layer._layers)

    def _cloned(self, original: keras.Model) -> keras.Model:
        inputs = None
        if isinstance(original, Functional):
            # Inputs created by clone_model would have other names.
            inputs = keras.tree.map_structure(
                lambda tensor: self.copy(tensor._keras_history.operation).output, original.input
            )
        copy = keras.models.clone_model(original, inputs, clone_function=self.copy)
        if type(copy) is not type(original):
            raise ValueError(
                f"model {original.name!r}: {type(original).__name__} is a subclass of "
                f"{type(copy).__name__} and cannot be created again, because its constructor takes "
                f"other arguments than that of {type(copy).__name__}"
            )
        self._pairs.append(_Pair(original, copy, by_config=False))
        return copy

    def _copied_holder(self, original: keras.Layer) -> keras.Layer:
        copy = recreate(type(original), original)
        self._copies[id(original)] = copy  # A part may refer to the object that contains it.
        self._exchange_parts(original, copy)
        self._holders.append((original, copy))
        self._pairs.append(_Pair(original, copy, by_config=False))
        return copy

    def _exchange_parts(self, original: keras.Layer, copy: keras.Layer) -> None:
        exchanged, replaced = {}, []
        # The copy may have fewer parts: those that build() creates come later.
        for part, made in zip(original._layers, list(copy._layers), strict=False):
            wanted = self.copy(part)
            if made is wanted:
                continue
            # The constructor creates Keras' own layer, where the original may have one of ours.
            if not isinstance(part, type(made)):
                raise ValueError(
                    f"layer {original.name!r}: created again from its config it has a "
                    f"{type(made).__name__} where the original has a {type(part).__name__}"
                )
            if made.built:  # A tf.function that is traced later must find weights.
                _build_one(part, wanted)
            exchanged[id(made)] = wanted
            replaced.append((part, made))
            copy._tracker.replace_tracked_value("layers", made, wanted)
        if not exchanged:
            return
        for name, value in list(vars(copy).items()):
            if not name.startswith("_self_"):  # TensorFlow's tracking, which setattr maintains.
                new = _exchanged(value, exchanged)
                if new is not value:
                    setattr(copy, name, new)
        self._retire(copy, replaced)

    def _retire(self, holder: keras.Layer, replaced: list[tuple[keras.Layer, keras.Layer]]) -> None:
        """Disables the layers of the constructor that the copies have replaced.

        A tf.function, a closure or another object may still refer to one, and would compute with
        random weights.
        """
        copies = [copy for copy in self._copies.values() if isinstance(copy, keras.Layer)]
        in_use = self._originals | {id(part) for copy in copies for part in copy._flatten_layers()}
        weights = []
        for original, made in replaced:
            if original.built and not original.weights and not hasattr(original, "save_assets"):
                continue  # It computes the same as the copy.
            refuse = _refusal(holder, original, self._misuses)
            for layer in made._flatten_layers():
                if id(layer) not in in_use:
                    layer.call = layer.quantized_call = refuse
                    weights += layer._trainable_variables + layer._non_trainable_variables
        _refuse_traced(holder, weights)
        for weight in weights:  # Code that reads them otherwise gets NaN.
            if keras.backend.is_float_dtype(weight.dtype):
                weight.assign(keras.ops.full_like(weight, float("nan")))

    def build(self) -> None:
        """Builds the copies of all layers that are built in the original."""
        # Containers come first, because they may build their parts and may create more of them.
        for pair in reversed(self._pairs):
            _build_like(*pair)
        for holder in self._holders:
            self._exchange_parts(*holder)
        for pair in self._pairs:
            _build_like(*pair)
        if self._misuses:  # Keras does not propagate errors while it builds a model.
            raise ValueError(self._misuses[0])

    def states(self) -> Iterator[tuple[keras.Layer, keras.Layer]]:
        """All originals and copies with a state of their own, a container before its parts."""
        for original, copy, by_config in reversed(self._pairs):
            yield original, copy
            if not by_config:
                continue
            parts, copies = _parts(original), _parts(copy)
            if len(parts) != len(copies):
                raise ValueError(
                    f"layer {original.name!r} has {len(parts)} layers in it, and {len(copies)} "
                    "when created again from its config"
                )
            for part, part_copy in zip(parts, copies, strict=True):
                if _is_custom(type(part)) and type(part_copy) is not type(part):
                    raise ValueError(
                        f"layer {part.name!r} in {original.name!r} is of class "
                        f"{_full_name(type(part))}, and of {_full_name(type(part_copy))} when "
                        "created again from its config, where classes of one name cannot be told "
                        "apart"
                    )
                yield part, part_copy


def _parts(layer: keras.Layer) -> list[keras.Layer]:
    """All layers in a layer, at every depth."""
    return layer._flatten_layers(include_self=False)


def _exchanged(value: Any, copies: dict[int, keras.Layer]) -> Any:
    """`value` with layers exchanged; lists, dicts and sets are changed in place."""
    if isinstance(value, keras.Layer):
        return copies.get(id(value), value)
    if isinstance(value, (dict, list)):
        for key, part in list(value.items() if isinstance(value, dict) else enumerate(value)):
            new = _exchanged(part, copies)
            if new is not part:
                value[key] = new
    elif isinstance(value, set):
        for part in list(value):
            new = _exchanged(part, copies)
            if new is not part:
                value.remove(part)
                value.add(new)
    elif isinstance(value, tuple):
        parts = [_exchanged(part, copies) for part in value]
        if any(new is not part for new, part in zip(parts, value, strict=True)):
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def _refusal(holder: keras.Layer, part: keras.Layer, misuses: list[str]) -> Callable:
    """The call method of a layer that must not be called any more; it records the misuse."""
    message = (
        f"layer {holder.name!r} uses its layer {part.name!r} through an object that cannot be "
        "copied (a tf.function, functools.partial, a closure or another object); make it read the "
        "layer from an attribute at each call"
    )

    def refuse(*args, **kwargs):
        misuses.append(message)
        raise ValueError(message)

    return refuse


def _refuse_traced(holder: keras.Layer, weights: list[keras.Variable]) -> None:
    """Refuses a tf.function that was already traced with the weights and so calls no layer."""
    ids = {id(weight.value) for weight in weights}
    for name in dir(holder) if ids else ():
        value = inspect.getattr_static(holder, name)
        if isinstance(value, tf.types.experimental.PolymorphicFunction):
            traces = getattr(holder, name)._list_all_concrete_functions()
            if any(id(variable) in ids for trace in traces for variable in trace.variables):
                raise ValueError(
                    f"layer {holder.name!r} calls its tf.function {name!r} before its layers can "
                    "be exchanged for their copies, in its constructor or build()"
                )


def _build_like(original: keras.Layer, copy: keras.Layer, by_config: bool) -> None:
    _build_one(original, copy)
    if by_config:
        for part, part_copy in zip(original._layers, copy._layers, strict=False):
            _build_like(part, part_copy, by_config)
        _build_one(original, copy)


def _build_one(original: keras.Layer, copy: keras.Layer) -> None:
    if copy.built or not original.built:
        return
    builds_nothing = type(original).build is keras.Layer.build
    if builds_nothing and not all(part.built for part in copy._layers):
        return  # Keras would warn; the parts are built next.
    copy.build_from_config(original.get_build_config())
    copy.built = True  # build_from_config does not set it for a model.


def _check_variables(original: keras.Model, copy: keras.Model) -> None:
    """Checks that no variables are missing from the configs, such as layers added later."""
    wanted, made = (
        Counter(
            f"{weight.name} {tuple(weight.shape)}{' trainable' * weight.trainable}"
            for weight in model.weights
        )
        for model in (original, copy)
    )
    if wanted != made:
        differences = sorted((wanted - made) + (made - wanted))
        raise ValueError(
            f"model {original.name!r} has {wanted.total()} weights, and {made.total()} when "
            f"created again from its config; these differ: {', '.join(differences)}"
        )


def _compile_like(original: keras.Model, copy: keras.Model) -> None:
    if original.compiled:
        # Repeated after clone_model: the trainable variables are known only now.
        copy.compile_from_config(original.get_compile_config())


def _warn_of_values(pairs: Iterator[tuple[keras.Layer, keras.Layer]]) -> None:
    """Warns of plain values of custom layers that were set after the constructor and are lost."""
    lost = {}
    for original, copy in pairs:
        if not _is_custom(type(original)):
            continue
        for name, value in vars(original).items():
            if name.startswith("_") or name == "built" or not hasattr(copy, name):
                continue
            other = getattr(copy, name)
            # Compared by repr, because a NaN is not equal to itself.
            if all(isinstance(v, _PLAIN_VALUES) for v in (value, other)) and repr(value) != repr(
                other
            ):
                lost[f"{original.name}.{name} is {value!r}, in the copy {other!r}"] = None
    if lost:
        warnings.warn(
            f"Layers are copied by their configs, which do not contain these values: "
            f"{'; '.join(lost)}.",
            stacklevel=4,
        )


@contextlib.contextmanager
def _found_by_name(model: keras.Model) -> Iterator[None]:
    """A context in which Keras finds the model's own classes and functions by their names.

    Within it functions have unique names: by their own names Keras could not distinguish them from
    each other or from Keras' functions. A unique name also lets Keras find a lambda, which it would
    otherwise create again from bytecode, without the globals of its module.
    """
    compiled = getattr(getattr(model, "_compile_config", None), "config", None)
    # Keras would replace a string by the class that is registered under it.
    strings = {part for part in keras.tree.flatten(compiled) if isinstance(part, str)}
    custom: dict[str, Any] = {}
    names: list[tuple[types.FunctionType, str]] = []
    try:
        for number, value in enumerate(_referred_to(model)):
            is_function = isinstance(value, types.FunctionType)
            named = value if is_function else type(value)
            if not _is_custom(named):
                continue
            if is_function:
                names.append((value, value.__name__))
                value.__name__ = f"{value.__name__.strip('<>')}[{number}]"
            name = keras.saving.get_registered_name(named)
            others = [custom.get(name), keras.saving.get_registered_object(name)]
            # A layer of a wrong class is detected elsewhere.
            if not isinstance(value, keras.Layer) and (
                name in strings or any(other not in (None, named) for other in others)
            ):
                raise ValueError(
                    f"model {model.name!r} has {_full_name(named)}, and another object is "
                    f"registered in Keras under the same name, {name!r}; give it a unique name"
                )
            custom[name] = named
        with keras.saving.custom_object_scope(custom):
            yield
    finally:
        for function, name in names:
            function.__name__ = name


def _referred_to(model: keras.Model) -> list[Any]:
    """The functions and the objects with a config that are reachable from a model's attributes."""
    reached, seen = [model], {id(model)}
    for value in reached:
        if isinstance(value, (list, tuple, set)):
            parts = value
        elif isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, SerializableDict):
            parts = value.config.values()
        elif hasattr(type(value), "get_config"):
            parts = getattr(value, "__dict__", {}).values()
        else:
            continue
        for part in parts:
            if id(part) not in seen:
                seen.add(id(part))
                reached.append(part)
    return [
        value
        for value in reached
        if isinstance(value, types.FunctionType) or hasattr(type(value), "get_config")
    ]


def _is_custom(named: type | types.FunctionType) -> bool:
    return (named.__module__ or "").split(".")[0] not in (*_KNOWN_PACKAGES, "builtins")


def _full_name(named: type | types.FunctionType) -> str:
    return f"{named.__module__}.{named.__qualname__}"
