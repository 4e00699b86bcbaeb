"""Checks that Keras layers feed one another in their model, as the layers of a stack do.

Keras records each symbolic call of a layer as a node. The inputs of a layer are traced back through
calls that return their input unchanged, into and out of models that are layers of others, to the
layer that computes them. Layers without nodes, which were only built or called on arrays, have no
graph: their order is the caller's.

Unchanged at inference are Dropout and the other layers of noise, unless they were called with
training=True, ActivityRegularization, Identity and a linear Activation. A Masking between two
layers is refused: it makes the upper layer skip the steps at which all outputs of the lower one
have its value, which no stack does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras

from tf_blockrnn.weights._checks import UnsupportedError

_UNCHANGED = (
    *(keras.layers.AlphaDropout, keras.layers.Dropout, keras.layers.GaussianDropout),
    *(keras.layers.GaussianNoise, keras.layers.SpatialDropout1D),
    *(keras.layers.ActivityRegularization, keras.layers.Identity),
)


# The (model, node) of each call of a model whose layers are being traced, from the outermost one.
_Calls = tuple[tuple[Any, Any], ...]


class _Source(NamedTuple):
    """The call that computes a layer's input; None for an input of the whole model."""

    operation: Any
    node: Any = None
    output: int = 0  # which of the call's outputs


def _returns_its_input(layer: Any, node: Any) -> bool:
    if isinstance(layer, keras.layers.TimeDistributed):
        layer = layer.layer
    if type(layer) is keras.layers.Activation:
        return layer.activation is keras.activations.linear
    training = node.arguments.kwargs.get("training") or True in node.arguments.args[1:2]
    return type(layer) in _UNCHANGED and not training


def _nodes(layer: Any) -> list[Any]:
    return list(getattr(layer, "_inbound_nodes", ()))


def _input(node: Any) -> Any:
    """The first argument of a call: the sequences, and not an initial state."""
    arguments = node.arguments
    first = arguments.args[:1] or [
        arguments.kwargs[name] for name in ("sequences", "inputs") if name in arguments.kwargs
    ]
    tensors = keras.tree.flatten(first)
    return tensors[0] if tensors else None


class _Graph:
    """The calls of a model's layers, or of single layers if the model is not known."""

    def __init__(self, model: Any | None):
        flat = [model, *model._flatten_layers(include_self=False)] if model is not None else []
        self._models = [one for one in flat if isinstance(one, keras.Model)]

    def sources(self, layer: Any) -> Iterator[_Source]:
        """What computes the input of a layer, for each of its calls."""
        for node in _nodes(layer):
            yield from self._trace(_input(node), ())

    def _trace(self, tensor: Any, calls: _Calls) -> Iterator[_Source]:
        history = getattr(tensor, "_keras_history", None)
        if history is None or history.operation is None:
            yield _Source(None)
            return
        operation = history.operation
        node = operation._inbound_nodes[history.node_index]
        if isinstance(operation, keras.layers.InputLayer):
            yield from self._above(tensor, calls)
        elif isinstance(operation, keras.Model) and getattr(operation, "outputs", None):
            inner = operation.outputs[history.tensor_index]
            yield from self._trace(inner, (*calls, (operation, node)))
        elif _returns_its_input(operation, node):
            yield from self._trace(_input(node), calls)
        else:
            yield _Source(operation, node, history.tensor_index)

    def _above(self, tensor: Any, calls: _Calls) -> Iterator[_Source]:
        """Continues from an input of a model to the argument of the model's call."""
        found = False
        for model, node in calls[-1:] or [(m, node) for m in self._models for node in _nodes(m)]:
            inputs = keras.tree.flatten(getattr(model, "inputs", None) or [])
            for number, one in enumerate(inputs):
                if one is tensor:
                    found = True
                    given = keras.tree.flatten(node.arguments.args[:1])
                    yield from self._trace(given[number], calls[:-1])
        if not found:
            yield _Source(None)


def _described(operation: Any) -> str:
    return f"{operation.name} ({type(operation).__name__})"


def _way(source: _Source, below: Any) -> list[str] | None:
    """The calls from a layer to a source, from the source down; None if there is no path."""
    seen, queue = {id(source.node)}, [(source.node, [_described(source.operation)])]
    while queue:
        node, way = queue.pop(0)
        for parent in node.parent_nodes if node is not None else ():
            if parent.operation is below:
                return way
            if id(parent) not in seen:
                seen.add(id(parent))
                queue.append((parent, [*way, _described(parent.operation)]))
    return None


def _check_source(source: _Source, below: Any, above: Any) -> None:
    if source.operation is below and source.output == 0:
        return
    what = f"{above.name} does not take the outputs of {below.name}: "
    if source.operation is None:
        cause = "it takes an input of its model"
    elif source.operation is below:
        cause = "it takes its last state"
    elif way := _way(source, below):
        cause = f"between them is {', then '.join(reversed(way))}"
    else:
        cause = f"it takes those of {_described(source.operation)}"
    raise UnsupportedError(
        f"{what}{cause}. As a stack they would compute something else; the layers can be read one "
        "by one, and a list of their cells or arrays is a stack whatever their model is"
    )


def check_stack(layers: Sequence[keras.layers.Layer], model: keras.Model | None = None) -> None:
    """Refuses recurrent layers that are no stack, from the input up, in the graph of their model.

    If the model is given, layers without a graph are refused too.
    """
    graph = _Graph(model)
    for below, above in itertools.pairwise(layers):
        sources = list(graph.sources(above))
        if not sources and (model is not None or _nodes(below)):
            raise UnsupportedError(
                f"the model does not record what the inputs of {above.name} are, so it is not "
                f"known whether they are the outputs of {below.name}"
            )
        for source in sources:
            _check_source(source, below, above)
        if not getattr(below, "return_sequences", True):
            raise UnsupportedError(
                f"{below.name} returns only its last step (return_sequences=False), so it cannot "
                f"be below {above.name} in a stack"
            )


def has_initial_state(layer: keras.layers.Layer) -> bool:
    """Whether a call of the layer in its model has an initial state."""
    return any(len(node.input_tensors) > 1 for node in _nodes(layer))
