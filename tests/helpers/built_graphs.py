"""Calls of an op in graphs that are built by hand, for tests that make thousands of them.

A tf.function that is traced for one call costs many times the call, and one that is called again
and again binds its arguments each time. What refuses is the same here: the op's shape function as
the op is added to a graph, its kernel as the graph runs. Arguments are tensors or lists of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from helpers import run_modes

_graph = tf.Graph()
_placeholders = {}
_runners = {}
_traced = {}


def refuse_while_building(function: Callable, tensors: Mapping, attrs: Mapping) -> None:
    """Raises what building a graph raises where all shapes are known."""
    with _graph.as_default():
        function(**_like(tensors, _known_placeholders(tensors)), **attrs)


def call_static(function: Callable, tensors: Mapping, attrs: Mapping):
    """Calls the op where the graph knows all shapes."""
    refuse_while_building(function, tensors, attrs)
    # A graph of its own: one that every call adds to would take ever longer to run.
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        feeds = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in _flat(tensors)]
        outputs = function(**_like(tensors, feeds), **attrs)
        values = _runner(session, feeds, outputs)(_flat(tensors))
    return tf.nest.pack_sequence_as(outputs, [tf.constant(v) for v in values])


def call_unknown(name: str, function: Callable, tensors: Mapping, attrs: Mapping):
    """Calls the op where the graph knows no shape: one op for all calls of a `name` and attrs."""
    signature = [(k, len(v) if isinstance(v, list) else 0) for k, v in tensors.items()]
    dtypes = [t.dtype.as_datatype_enum for t in _flat(tensors)]
    key = (name, repr(signature), repr(dtypes), repr(attrs))
    if key not in _runners:
        with tf.Graph().as_default() as graph:
            feeds = [tf.compat.v1.placeholder(t.dtype) for t in _flat(tensors)]
            outputs = function(**_like(tensors, feeds), **attrs)
        _runners[key] = outputs, _runner(tf.compat.v1.Session(graph=graph), feeds, outputs)
    outputs, run = _runners[key]
    return tf.nest.pack_sequence_as(outputs, [tf.constant(v) for v in run(_flat(tensors))])


def zeros(shape, dtype=tf.float32) -> tf.Tensor:
    # tf.zeros would take a shape of 2^62 through int32 somewhere; a reshape does not.
    count = 0 if 0 in shape else int(np.prod(shape))
    return tf.reshape(tf.zeros([count], dtype), tf.constant(shape, tf.int64))


def call_or_trace(mode: str, function: Callable, tensors: Mapping, attrs: Mapping):
    """Calls the op eagerly, or in a tf.function that knows all shapes ("static") or none.

    In the mode "jit" XLA compiles one that knows none, with the shapes of the call.
    """
    if mode == "eager":
        return function(**tensors, **attrs)
    if mode == "static":
        # Most calls end here, which costs less than to trace a function that ends at the same op.
        refuse_while_building(function, tensors, attrs)
        return tf.function(lambda t: function(**t, **attrs), autograph=False)(tensors)
    key = (mode, function, repr({k: t.dtype for k, t in tensors.items()}), repr(attrs))
    if key not in _traced:
        signature = {k: tf.TensorSpec(None, t.dtype) for k, t in tensors.items()}
        graph = run_modes.in_mode(
            "jit" if mode == "jit" else "graph",
            lambda t: function(**t, **attrs),
            input_signature=[signature],
        )
        _traced[key] = graph.get_concrete_function()
    return _traced[key](tensors)


def _known_placeholders(tensors) -> list:
    """Some for each place, dtype and shape, used by all calls."""
    found = []
    for place, value in enumerate(_flat(tensors)):
        key = (place, value.dtype, tuple(value.shape))
        if key not in _placeholders:
            _placeholders[key] = tf.compat.v1.placeholder(value.dtype, value.shape)
        found.append(_placeholders[key])
    return found


def _flat(tensors: Mapping) -> list:
    return [t for v in tensors.values() for t in (v if isinstance(v, list) else [v])]


def _like(tensors: Mapping, flat: list) -> dict:
    """The arguments again, made of the elements of the list."""
    rest = iter(flat)
    return {
        k: [next(rest) for _ in v] if isinstance(v, list) else next(rest)
        for k, v in tensors.items()
    }


def _runner(session, feeds, outputs) -> Callable:
    """Runs the op and raises its kernel's own message; Session.run adds where it was built."""
    fetches = tf.nest.flatten(outputs)
    options = config_pb2.CallableOptions(
        feed=[t.name for t in feeds], fetch=[t.name for t in fetches]
    )
    run = session._make_callable_from_options(options)
    return lambda tensors: run(*[np.asarray(t.numpy()) for t in tensors])
