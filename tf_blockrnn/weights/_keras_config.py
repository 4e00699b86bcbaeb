"""Layers of Keras 2 and 3 as the config of a model in a file describes them.

Nothing of the file runs, and no framework is needed: layers of other programs' classes may be
anywhere in the model.

A class of a framework has its module in the config, as Keras 3 writes it; Keras 2 wrote the name
alone, and `package>name` for a registered class. The calls of a layer are `inbound_nodes`: in
Keras 2 lists of [layer, number of its call, number of the output, arguments], in Keras 3 arguments
with the tensors as `__keras_tensor__`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tf_blockrnn.weights._checks import UnsupportedError
from tf_blockrnn.weights._formats import KERAS_HARD_SIGMOID
from tf_blockrnn.weights._keras_layers import (
    CELL_LAYERS,
    CUDNN,
    FRAMEWORKS,
    KNOWN,
    Call,
    KerasLayer,
    Tensor,
    without_masks,
)

# The modules of layers in files of TensorFlow's own Keras 2.
_MODULES = (*FRAMEWORKS, "tensorflow")
_OURS = "tf_blockrnn>"
# The classes whose `layers` and `cells` are layers; of others they may be anything.
_WITH_LAYERS = ("Sequential", "Functional", "Model", "RNN", "StackedRNNCells")
_LONGEST_NAME = 1000


def _class_of(found: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of the class of a config, and whether it is a framework's."""
    package, mark, name = found["class_name"].rpartition(">")
    if mark:
        return name, package + mark == _OURS
    registered, module = found.get("registered_name") or "", found.get("module")
    if ">" in registered:
        return name, registered.startswith(_OURS)
    if module is None:  # Keras 3 writes none for an unregistered class, whatever its name
        return name, not registered
    return name, module.partition(".")[0] in _MODULES


def _snake_case(name: str) -> str:
    """The name of a class in the paths of Keras 3's files of weights."""
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


class ConfigLayer(KerasLayer):
    """A layer, cell, model or operation that a config describes.

    Args:
      found: the config, with its class.
      place: its path in Keras 3's files of weights.
      version: of the Keras that wrote the file: (major, minor).
      in_bidirectional: whether it is anywhere in a Bidirectional.
      read: set when the file with the weights is open; returns those of a cell.
      has_cells: set when the file with the weights is open.
    """

    def __init__(
        self,
        found: Mapping[str, Any],
        place: str,
        version: tuple[int, int],
        in_bidirectional: bool = False,
    ):
        self.class_name, self.is_own = _class_of(found)
        config = found["config"]
        if isinstance(config, list):  # a Sequential until Keras 2.2.2
            config = {"name": found.get("name", "sequential"), "layers": config}
        self.config: Mapping[str, Any] = config
        self.name = config.get("name") or self.class_name
        if max(len(self.name), len(self.class_name)) > _LONGEST_NAME:  # paths repeat them
            raise ValueError(f"a layer has a name of more than {_LONGEST_NAME} characters")
        self.kind = self.class_name if self.is_own else ""
        self.place, self.version = place, version
        if self.kind == "Bidirectional" and in_bidirectional:
            # Such configs could describe more layers than memory can hold: each has its layer
            # twice if there is no config of the backward one.
            raise UnsupportedError(f"{self.name}: a Bidirectional in another is not supported")
        self._in_bidirectional = in_bidirectional or self.kind == "Bidirectional"
        self.calls: list[Call] = []
        self.inputs: tuple[Tensor, ...] = ()
        self.outputs: tuple[Tensor, ...] = ()
        self.read: Callable[[str], list[np.ndarray]] | None = None
        self.has_cells = False
        self._inner = {name: self._made(one, f"{place}/{name}") for name, one in self._configs()}
        self._lists = {
            name: self._all(name, config[name])
            for name in ("layers", "cells")
            if name in config and (isinstance(config[name], list) or self.kind in _WITH_LAYERS)
        }
        if "layers" in self._lists:
            _connect(self, self._lists["layers"])

    def _made(self, found: Mapping[str, Any], place: str) -> ConfigLayer:
        """A layer in this one."""
        return ConfigLayer(found, place.lstrip("/"), self.version, self._in_bidirectional)

    def _configs(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        config = self.config
        if self.kind == "Bidirectional":
            layer = config["layer"]
            yield "forward_layer", layer
            yield "backward_layer", config.get("backward_layer") or layer
        elif isinstance(config.get("layer"), dict):
            yield "layer", config["layer"]
        if self.kind == "RNN":
            yield "cell", config["cell"]
        elif self.kind in CELL_LAYERS:
            if "output_dim" in config:
                raise UnsupportedError(
                    f"{self.name}: the file was written by Keras 1, whose recurrent layers have "
                    "other arrays; load it in Keras 2.2 and save it there"
                )
            yield "cell", {"class_name": f"{self.class_name}Cell", "config": config}

    def _all(self, attribute: str, configs: Sequence[Mapping[str, Any]]) -> list[ConfigLayer]:
        layers, seen = [], Counter()
        for found in configs:
            name = _snake_case(_class_of(found)[0])
            number, seen[name] = seen[name], seen[name] + 1
            path = f"{self.place}/{attribute}/{name}{f'_{number}' if number else ''}"
            layers.append(self._made(found, path))
        return layers

    def get(self, attribute: str, default: Any = None) -> Any:
        return self.config.get(attribute, default)

    def inner(self, attribute: str) -> ConfigLayer | None:
        if attribute == "cell" and self.kind in CUDNN:
            return self
        return self._inner.get(attribute)

    def all_inner(self, attribute: str) -> Sequence[ConfigLayer]:
        return self._lists.get(attribute, ())

    def activation(self, argument: str) -> str:
        defaults = {"recurrent_activation": "hard_sigmoid" if self.version < (2, 3) else "sigmoid"}
        found = self.config.get(argument, defaults.get(argument, "tanh"))
        if isinstance(found, dict):
            name, known = _class_of(found)
            name = found["config"] if isinstance(found.get("config"), str) else name
            return name if known and found.get("module") else f"{name} of another program"
        return str(found or "linear")

    @property
    def hard_sigmoid(self) -> float:
        return KERAS_HARD_SIGMOID if self.version >= (3, 0) else 0.2

    def arrays(self, cell: str) -> list[np.ndarray]:
        if self.read is None:
            raise ValueError(
                f"{self.name}: which arrays of the file are its own is not known: there are none "
                "of its name"
            )
        return self.read(cell)

    def check_computes_as_known(self) -> None:
        if self.kind not in KNOWN:
            raise UnsupportedError(
                f"{self.name}: it is not known what the class {self.class_name} computes, which is "
                "of another program; the arrays alone can be read from a file of HDF5 weights"
            )

    def parts(self) -> Iterator[ConfigLayer]:
        """The layers and cells in this one."""
        for one in itertools.chain(self._inner.values(), *self._lists.values()):
            yield one
            yield from one.parts()

    def cells(self) -> Iterator[ConfigLayer]:
        """The cells in a recurrent layer, in the order of its weights."""
        if self.kind == "Bidirectional":
            for one in self._inner.values():
                yield from one.cells()
        elif "cells" in self._lists:
            for one in self._lists["cells"]:
                yield from one.cells()
        elif self.kind in CUDNN or "cell" not in self._inner:
            yield self
        else:
            yield from self._inner["cell"].cells()


# ---- the graph


def _tensors(value: Any, layers: Mapping[str, ConfigLayer], keras_2: bool) -> Iterator[Tensor]:
    """The tensors in arguments."""
    if isinstance(value, dict):
        if value.get("class_name") == "__keras_tensor__":
            value = value["config"]["keras_history"]
        else:
            value = list(value.values())
    if not isinstance(value, list):
        return
    if len(value) < 3 or not isinstance(value[0], str) or value[0] not in layers:
        for one in value:
            yield from _tensors(one, layers, keras_2)
        return
    layer = layers[value[0]]
    # Keras 2 counts a call of its own for some of the models in models.
    number = None if keras_2 and layer.all_inner("layers") else value[1]
    yield Tensor(layer, number, value[2])


def _call(layer: ConfigLayer, node: Any, layers: Mapping[str, ConfigLayer]) -> Call:
    if isinstance(node, dict):  # of Keras 3
        given, named = node.get("args", []), node.get("kwargs", {})
        first = given[:1] or [named[name] for name in ("sequences", "inputs") if name in named]
        keras_2, resets = False, named.get("resets")
        given, named, masks = without_masks(given, named)
        others = [given[1:], named]
    else:
        first, keras_2, resets = node, True, None
        others = [entry[3] for entry in node if isinstance(entry, list) and len(entry) > 3]
        named = next((one for one in others if isinstance(one, dict)), {})
        given, _, masks = without_masks([], named)
        others = [without_masks([], one)[1] if isinstance(one, dict) else one for one in others]
    first = tuple(_tensors(first, layers, keras_2))
    further = tuple(tensor for one in others for tensor in _tensors(one, layers, keras_2))
    training = named.get("training") or any(one is True for one in given[1:2])
    masks = tuple(_tensors(masks, layers, keras_2))
    resets = tuple(_tensors([resets], layers, keras_2))
    return Call(layer, first, first + further, masks, bool(training), resets)


def _connect(model: ConfigLayer, layers: Sequence[ConfigLayer]) -> None:
    """Adds the calls of a model's layers."""
    named, config = {layer.name: layer for layer in layers}, model.config
    if "input_layers" not in config:
        _chain(model, layers)
        return
    keras_2 = True
    for layer, found in zip(layers, config["layers"], strict=True):
        nodes = found.get("inbound_nodes", ())
        layer.calls = [_call(layer, node, named) for node in nodes]
        keras_2 = keras_2 and not any(isinstance(node, dict) for node in nodes)
    model.inputs, model.outputs = (
        tuple(_tensors(config[name], named, keras_2)) for name in ("input_layers", "output_layers")
    )


def _chain(model: ConfigLayer, layers: Sequence[ConfigLayer]) -> None:
    """Those of a Sequential, whose config is a list of layers, without their calls."""
    found = {"class_name": "InputLayer", "config": {"name": f"{model.name}_input"}}
    tensor = Tensor(ConfigLayer(found, "", model.version), 0)
    model.inputs = (tensor,)
    for layer in layers:
        if layer.kind != "InputLayer":
            layer.calls = [Call(layer, (tensor,), (tensor,))]
            tensor = Tensor(layer, 0)
    model.outputs = (tensor,)
