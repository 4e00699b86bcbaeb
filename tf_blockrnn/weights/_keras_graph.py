"""Checks that Keras layers feed one another in their model, as the layers of a stack do.

A model records each symbolic call of a layer. The inputs of a layer are traced back through calls
that return their input unchanged, into and out of models that are layers of others, to the layer
that computes them. Layers without calls, which were only built or called on arrays, have no graph:
their order is the caller's.

Unchanged at inference are Dropout and the other layers of noise, unless they were called with
training=True, ActivityRegularization, Identity and a linear Activation. A Masking between two
layers is refused: it makes the upper layer skip the steps at which all outputs of the lower one
have its value, which no stack does.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._keras_layers import (
    LAYERS,
    Call,
    KerasLayer,
    Tensor,
    recurrent_layers,
)

_UNCHANGED = (
    *("AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise", "SpatialDropout1D"),
    *("ActivityRegularization", "Identity"),
)


class _Source(NamedTuple):
    """The call that computes a layer's input; None for an input of the whole model."""

    call: Call | None
    output: int = 0  # which of the call's outputs


def _returns_its_input(call: Call) -> bool:
    layer = call.layer
    if layer.kind == "TimeDistributed" and layer.is_own:
        layer = layer.inner("layer")
    if not layer.is_own:
        return False
    if layer.kind == "Activation":
        return layer.activation("activation") == "linear"
    return layer.kind in _UNCHANGED and not call.training


def _called(tensor: Tensor) -> Sequence[Call]:
    """The call of which a tensor is an output, or all that it may be."""
    calls = tensor.layer.calls
    return calls if tensor.call is None else calls[tensor.call : tensor.call + 1]


def _reached(
    tensors: Sequence[Tensor], ends: Sequence[Tensor] = ()
) -> dict[tuple[KerasLayer, int], Call]:
    """The calls in one model that tensors derive from, by layer and number, down to the ends."""
    found, queue = {}, list(tensors)
    while queue:
        tensor = queue.pop()
        if tensor.layer is None or tensor in ends:
            continue
        for number, call in enumerate(_called(tensor), tensor.call or 0):
            if (tensor.layer, number) not in found:
                found[tensor.layer, number] = call
                queue += call.inputs
    return found


def _models(layer: KerasLayer) -> Iterator[KerasLayer]:
    if layer.outputs:
        yield layer
    wrapped = layer.inner("layer")
    for one in layer.all_inner("layers") or ([wrapped] if wrapped else []):
        yield from _models(one)


class _Graph:
    """The calls of a model's layers, or of single layers if the model is not known.

    A tensor's origins are the sources of its values in the model whose layers compute it, and the
    inputs of that model. Those of each tensor are found once, whatever the number of paths to it.
    """

    def __init__(self, model: KerasLayer | None):
        self._models = list(_models(model)) if model is not None else []
        self._found: dict[Tensor, dict[_Source | Tensor, None] | None] = {}

    def sources(self, layer: KerasLayer) -> Iterator[_Source]:
        """What computes the input of a layer, in any of its calls."""
        pending = [one for call in layer.calls for one in self._origins(call.first[:1])]
        seen = set()
        while pending:
            one = pending.pop(0)
            if one in seen:
                continue
            seen.add(one)
            if isinstance(one, _Source):
                yield one
            else:  # an input of the layer's model: the arguments of all calls of that
                calls = [call for model in self._models for call in model.calls]
                pending += self._origins_above(one, calls)

    def is_masked(self, layer: KerasLayer) -> bool:
        """Whether steps of what a layer takes are masked, if all layers but one pass masks on.

        A recurrent layer that returns its last step alone does not.
        """
        seen, calls, queue = set(), list(layer.calls), []
        while calls or queue:
            if any(call.masks for call in calls):
                return True
            queue += [tensor for call in calls for tensor in call.inputs]
            calls = []
            if not queue:
                break
            tensor = queue.pop()
            below = tensor.layer
            if below is None or tensor in seen:
                continue
            seen.add(tensor)
            if below.kind == "Masking" or below.get("mask_zero"):
                return True
            if below.outputs:
                queue.append(below.outputs[tensor.output])
            elif below.kind == "InputLayer":
                above = [m for m in self._models if any(one.layer == below for one in m.inputs)]
                calls = [call for model in above for call in model.calls]
            elif below.kind not in LAYERS or not _last_step_only(below):
                calls = list(_called(tensor))
        return False

    def repeated(self, layer: KerasLayer) -> tuple[int, bool]:
        """How often a model calls a layer, or one that it is in, and whether on its own outputs."""
        for model in self._models:
            calls: dict[KerasLayer, list[Call]] = {}
            for (one, _), call in _reached(model.outputs, model.inputs).items():
                calls.setdefault(one, []).append(call)
            for one, made in calls.items():
                if len(made) > 1 and (
                    one == layer or layer in dict(recurrent_layers(one)).values()
                ):
                    below = (_reached(call.first, model.inputs) for call in made)
                    return len(made), any(one == lower for found in below for lower, _ in found)
        return 1, False

    def _origins(self, tensors: Sequence[Tensor]) -> Iterable[_Source | Tensor]:
        """Those of the only tensor of a sequence."""
        if not tensors or tensors[0].layer is None:
            return [_Source(None)]
        tensor = tensors[0]
        if tensor.layer.kind == "InputLayer":
            return [tensor]
        if tensor not in self._found:
            self._found[tensor] = None
            self._found[tensor] = {
                one: None for call in _called(tensor) for one in self._origins_of(tensor, call)
            }
        found = self._found[tensor]
        if found is None:
            raise UnsupportedError(
                f"the model does not record which call of {tensor.layer.name} takes the outputs of "
                "which, so it is not known whether recurrent layers are a stack; they can be read "
                "one by one"
            )
        return found

    def _origins_of(self, tensor: Tensor, call: Call) -> Iterator[_Source | Tensor]:
        """Those of an output of a call."""
        if tensor.layer.outputs:
            for one in self._origins([tensor.layer.outputs[tensor.output]]):
                if isinstance(one, _Source):
                    yield one
                else:
                    yield from self._origins_above(one, [call])
        elif _returns_its_input(call):
            yield from self._origins(call.first[:1])
        else:
            yield _Source(call, tensor.output)

    def _origins_above(self, tensor: Tensor, calls: Sequence[Call]) -> Iterator[_Source | Tensor]:
        """Those of the arguments that calls of a model have for one of its inputs."""
        arguments = [
            call.first[number : number + 1]
            for call in calls
            for number, one in enumerate(call.layer.inputs)
            if one.layer == tensor.layer
        ]
        for argument in arguments or [()]:
            yield from self._origins(argument)


def _described(layer: KerasLayer) -> str:
    return f"{layer.name} ({layer.class_name})"


def _path(source: Call, below: KerasLayer) -> list[str] | None:
    """The calls from a layer to a source, from the source down; None if there is no path."""
    above: dict[KerasLayer, KerasLayer | None] = {source.layer: None}
    queue = collections.deque([source])
    while queue:
        call = queue.popleft()
        for tensor in call.inputs:
            if tensor.layer == below:
                path, one = [], call.layer
                while one is not None:
                    path.append(_described(one))
                    one = above[one]
                return path[::-1]
            if tensor.layer is not None and tensor.layer not in above:
                above[tensor.layer] = call.layer
                queue += _called(tensor)
    return None


def _check_source(source: _Source, below: KerasLayer, above: KerasLayer) -> None:
    if source.call is not None and source.call.layer == below and source.output == 0:
        return
    what = f"{above.name} does not take the outputs of {below.name}: "
    if source.call is None:
        cause = "it takes an input of its model"
    elif source.call.layer == below:
        cause = "it takes its last state"
    elif path := _path(source.call, below):
        cause = f"between them is {', then '.join(reversed(path))}"
    else:
        cause = f"it takes those of {_described(source.call.layer)}"
    raise UnsupportedError(
        f"{what}{cause}. As a stack they would compute something else; the layers can be read one "
        "by one, and a list of their cells or arrays is a stack whatever their model is"
    )


def _last_step_only(layer: KerasLayer) -> bool:
    # A Bidirectional's layers return what it does; as an object it has the attribute too.
    one = layer.inner("forward_layer") if layer.kind == "Bidirectional" else layer
    return layer.kind != "" and not one.get("return_sequences", False)


def check_stack(layers: Sequence[KerasLayer], model: KerasLayer | None = None) -> None:
    """Refuses recurrent layers that are no stack, from the input up, in the graph of their model.

    If the model is given, layers without a graph are refused too.
    """
    graph = _Graph(model)
    for below, above in itertools.pairwise(layers):
        sources = list(graph.sources(above))
        if not sources and (model is not None or below.calls):
            raise UnsupportedError(
                f"the model does not record what the inputs of {above.name} are, so it is not "
                f"known whether they are the outputs of {below.name}"
            )
        for source in sources:
            _check_source(source, below, above)
        if _last_step_only(below):
            raise UnsupportedError(
                f"{below.name} returns only its last step (return_sequences=False), so it cannot "
                f"be below {above.name} in a stack"
            )
        if below.get("go_backwards") or above.get("go_backwards"):
            # Keras returns the outputs in the order of processing, so the layer above such a layer
            # would read them in reverse order.
            raise UnsupportedError("a layer with go_backwards cannot be part of a stack")


def notes_of_graph(
    layers: Iterable[tuple[str, KerasLayer]], model: KerasLayer | None, selected: bool
) -> tuple[str, ...]:
    """What a model does with layers that is not part of their weights, given with their names.

    Raises:
      UnsupportedError: it calls one on its own outputs, and the layers were not selected by name.
    """
    graph, notes = _Graph(model), []
    for name, layer in layers:
        times, on_its_own = graph.repeated(layer)
        what = f"{name}: the model calls it {times} times{', on its own outputs' * on_its_own}"
        if on_its_own and not selected:
            raise UnsupportedError(
                f"{what}. As one layer it would compute something else; select it by its name to "
                "read its weights, and run them once for each call"
            )
        if times > 1:
            notes.append(f"{what}: run the weights once for each call")
        if graph.is_masked(layer):
            notes.append(
                f"{name}: the model masks steps, which is not a weight: give lengths= to the "
                "session"
            )
    return tuple(notes)
