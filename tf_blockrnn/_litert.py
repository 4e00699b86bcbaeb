"""`to_litert`: Keras models with fused layers as models of LiteRT (TensorFlow Lite).

LiteRT has none of our ops. The model's call is traced with its recurrent layers on Keras' own
operations, and with its weights as constants. What a call assigns, the states of stateful layers
above all, becomes variables of the LiteRT model. The model itself is neither copied nor changed.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tf_blockrnn import _fuse, _keras_private
from tf_blockrnn.layers import _fused_call

_SERVE, _RESET = "serving_default", "reset_states"


def to_litert(model: keras.Model, batch_size: int = 1, input_signature: Any = None) -> bytes:
    """Converts a Keras model, on the fused ops or not, to a LiteRT (TensorFlow Lite) model.

    The result contains only LiteRT's own operations, and needs neither this package nor TensorFlow.
    It computes the model's call with `training=False`, up to float32 rounding: LiteRT sums in
    another order. Recurrent layers become loops over Keras' cells, with any mask, in both
    directions, and with the peepholes, clips and projections of this package's layers.

    The model has the signature "serving_default", with the names of the model's inputs, and the
    outputs `output_0`, `output_1` and so on in their order, or the keys of a dict. The batch
    size is fixed; other dimensions that are unknown in the model remain so, and the interpreter can
    resize them.

    The LiteRT model of a stateful model keeps its states from call to call. They start as those
    of the model; a second signature, "reset_states", sets them to zeros.

    Args:
      model: a built Keras model. It is not changed.
      batch_size: the batch size, if that of the model is unknown.
      input_signature: the input of the model, as `tf.TensorSpec`s in the structure of its argument;
        None for that of a Sequential or functional model. A subclassed model needs it.

    Returns:
      The LiteRT model: the content of a `.tflite` file.

    Raises:
      TypeError: model is not a Keras model, or one of tf_keras; batch_size is not an integer.
      ValueError: model is not built; batch_size is not above 0; a subclassed model
        without input_signature; a recurrent layer that computes in another type than float32, or
        is frozen in bfloat16 or int8, whose results LiteRT would not reproduce.
      RuntimeError: Keras' backend is not TensorFlow.

      TensorFlow's converter raises its ConverterError for other operations that LiteRT lacks.

    Example:
      >>> import keras, tf_blockrnn
      >>> model = keras.Sequential([keras.Input((5, 3)), tf_blockrnn.layers.LSTM(4)])
      >>> content = tf_blockrnn.to_litert(model)
      >>> content[4:8]
      b'TFL3'
    """
    _check(model, batch_size)
    parts = _fuse.parts_of(model)
    specs = _specs(model, batch_size, input_signature)
    module = tf.Module()
    with _without_ops(parts):
        signatures = _signatures(model, parts, specs, module)
        with tempfile.TemporaryDirectory() as folder:
            tf.saved_model.save(module, folder, signatures=signatures)
            converter = tf.lite.TFLiteConverter.from_saved_model(folder, list(signatures))
            # What the call assigns stays a variable; the weights are constants already.
            converter.experimental_enable_resource_variables = bool(module.variables)
            return converter.convert()


def _check(model: Any, batch_size: Any) -> None:
    _fuse.check("to_litert", model)
    is_integer = isinstance(batch_size, int) and not isinstance(batch_size, bool)
    if not is_integer or batch_size < 1:
        error = ValueError if is_integer else TypeError
        raise error(f"to_litert: batch_size must be a positive integer, got {batch_size!r}")
    parts = _fuse.parts_of(model)
    unbuilt = [layer.name for layer in [model, *_fuse.recurrent(parts)] if not layer.built]
    if unbuilt:
        have = "has" if len(unbuilt) == 1 else "have"
        raise ValueError(
            f"to_litert: model must be built, but {', '.join(unbuilt)} {have} no weights yet; call "
            "it once"
        )
    for layer in _fuse.recurrent(parts):
        if layer.compute_dtype != "float32":
            raise ValueError(
                f"to_litert: layer {layer.name!r} must compute in float32, the type of LiteRT's "
                f"loops, it computes in {layer.compute_dtype}"
            )
        precision = getattr(vars(layer).get("_frozen"), "precision", "float32")
        if precision != "float32":
            raise ValueError(
                f'to_litert: layer {layer.name!r} must be of precision "float32", it is frozen to '
                f'"{precision}", which LiteRT does not compute. Convert the model that was frozen.'
            )


# ---- inputs and outputs


def _specs(model: keras.Model, batch_size: int, given: Any) -> Any:
    """The tensors of a call, in the structure of the model's argument."""
    if given is None:
        if isinstance(model, keras.Sequential):
            given = model.inputs[0]
        elif _keras_private.is_functional(model):
            given = model.input
        else:
            raise ValueError(
                f"to_litert: input_signature must be given for model {model.name!r}, a subclassed "
                "model, got None"
            )
    used: set[str] = set()

    def spec(tensor: Any) -> tf.TensorSpec:
        name = re.sub(r"\W", "_", tensor.name or "") or "input"
        while name in used:
            name += "_"
        used.add(name)
        shape = list(tensor.shape)
        if shape and shape[0] is None:
            shape[0] = batch_size
        return tf.TensorSpec(shape, tensor.dtype, name=name)

    return tf.nest.map_structure(spec, given)


def _named(outputs: Any) -> dict[str, tf.Tensor]:
    """The outputs of a signature."""
    if isinstance(outputs, dict) and not any(map(tf.nest.is_nested, outputs.values())):
        return dict(outputs)
    return {f"output_{i}": output for i, output in enumerate(tf.nest.flatten(outputs))}


# ---- the functions


@contextlib.contextmanager
def _without_ops(parts: list[keras.Layer]) -> Iterator[None]:
    """Within it the layers run on operations that LiteRT has."""
    with contextlib.ExitStack() as undo:
        undo.enter_context(_fused_call.without_ops())
        for layer in parts:
            if "use_cudnn" in vars(layer):
                undo.callback(vars(layer).__setitem__, "use_cudnn", vars(layer)["use_cudnn"])
                vars(layer)["use_cudnn"] = False
        yield


def _signatures(
    model: keras.Model, parts: list[keras.Layer], specs: Any, module: tf.Module
) -> dict[str, Callable]:
    """The functions of the LiteRT model by their names; module holds their variables."""
    states = _states(parts)
    variables = {id(v): v for v in [*states, *(v for part in parts for v in part.variables)]}
    numbers = {key: tf.constant(variable.value) for key, variable in variables.items()}
    held: dict[int, tf.Variable] = {}
    while True:
        serve, assigned = _traced(model, specs, variables, numbers, held)
        if assigned <= set(held):
            break
        # Once more, with a variable for each of those that the call assigns.
        held = {key: tf.Variable(numbers[key]) for key in assigned}
    module.held = list(held.values())
    signatures = {_SERVE: serve}
    if states:
        signatures[_RESET] = _reset([held[id(state)] for state in states if id(state) in held])
    return signatures


def _states(parts: list[keras.Layer]) -> list[keras.Variable]:
    """The states of stateful layers, which Keras does not count as variables of theirs."""
    layers = [part for part in parts if isinstance(part, keras.layers.RNN) and part.stateful]
    return [state for layer in layers for state in tf.nest.flatten(layer.states)]


def _traced(
    model: keras.Model,
    specs: Any,
    variables: dict[int, keras.Variable],
    numbers: dict[int, tf.Tensor],
    held: dict[int, tf.Variable],
) -> tuple[Callable, set[int]]:
    """The model's call as a function of flat inputs, and the variables that it assigns.

    numbers and held: for each of the variables its constant, or what holds it and is assigned.
    """
    assigned: set[int] = set()

    @tf.function(input_signature=tf.nest.flatten(specs), autograph=False)
    def serve(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        before = {**numbers, **{key: variable.read_value() for key, variable in held.items()}}
        mapping = [(variables[key], value) for key, value in before.items()]
        with keras.StatelessScope(state_mapping=mapping) as scope:
            outputs = model(tf.nest.pack_sequence_as(specs, inputs), training=False)
        for key, variable in variables.items():
            after = scope.get_current_value(variable)
            if after is not before[key]:
                assigned.add(key)
            if key in held:
                held[key].assign(after)
        return _named(outputs)

    serve.get_concrete_function()
    return serve, assigned


def _reset(states: list[tf.Variable]) -> Callable:
    @tf.function(input_signature=[])
    def reset() -> dict[str, tf.Tensor]:
        for state in states:
            state.assign(tf.zeros_like(state))
        return {"states": tf.constant(len(states))}  # A signature must have an output.

    return reset
