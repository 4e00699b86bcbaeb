"""The recurrent layers and cells of a model, with their paths, and whether each runs on the ops.

Whether it does is asked of the functions by which the layers themselves decide
(`layers/_fused_call.py`, `_enable_tf_keras.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras

from tf_blockrnn import _fuse, _keras_private
from tf_blockrnn.layers import _cell_loop, _fused_call, _fusing, gru, lstm, simple_rnn
from tf_blockrnn.layers._fused_cell import FusedCell
from tf_blockrnn.layers._fused_layer import FusedLayer
from tf_blockrnn.layers._layer_norm import NormalizedCell

_SPECS = (gru.SPEC, lstm.SPEC, simple_rnn.SPEC)
_PACKAGES = ("keras", "tf_keras", "tf_blockrnn")
_SWITCHED_OFF = "tf_blockrnn.enable_keras() is off"


class Judged(NamedTuple):
    """As in `_report.Row`."""

    fused: bool | None
    reason: str = ""
    change: str = ""


def recurrent(model: Any, library: Library) -> list[tuple[Any, str]]:
    """The recurrent layers and cells, each with its path, in the order of the model.

    A layer stands for its cells. A cell has its own entry where it runs on an op step by step, in a
    `keras.layers.RNN` whose loop is Keras', and where no recurrent layer holds it.
    """
    parts = library.parts(model)
    stepped, inside = set(), set()
    for layer in (part for part, _ in parts if isinstance(part, library.layer_class)):
        inside |= {id(cell) for cell in getattr(layer.cell, "cells", [layer.cell])}
        stepped |= {id(cell) for cell in library.stepped(layer)}
    places: dict[int, tuple[tuple[int, ...], str]] = {}
    found = []
    for number, (part, owner) in enumerate(parts):
        place, path = places[id(owner)] if owner is not None else ((), "")
        if owner is not None:
            place, path = (*place, number), f"{path}/{part.name}".lstrip("/")
        places[id(part)] = place, path
        is_cell = isinstance(part, library.cell_classes)
        by_itself = id(part) in stepped or (is_cell and id(part) not in inside)
        if by_itself or isinstance(part, library.layer_class):
            found.append((place, part, path or part.name))
    found.sort(key=lambda each: each[0])
    return [(part, path) for _, part, path in found]


def class_name(layer: Any) -> str:
    """As `_report.Row.layer_class`."""
    cls = type(layer)
    known = next(each for each in cls.__mro__ if _package(each) in _PACKAGES)
    name = f"{_package(known)}.layers.{known.__name__}"
    return name if known is cls else f"{cls.__name__}({name})"


def switched(model: keras.Model) -> list[str]:
    """The paths of the plain layers of a model of Keras 3 that run on ops while the switch is on.

    Layers with a `call` of their own, of which it is not known, are included.
    """
    on, off = Keras3(enabled=True), Keras3(enabled=False)
    return [
        path
        for layer, path in recurrent(model, on)
        if on.judge(layer).fused is not False and off.judge(layer).fused is False
    ]


# ---- Keras 3 and tf_keras


class Library:
    """What differs between the two."""

    name: str
    enabled: bool  # whether the switch of `enable_keras` is on
    model_class: type
    layer_class: type  # of recurrent layers
    cell_classes: tuple[type, ...]

    def parts(self, model: Any) -> list[tuple[Any, Any]]:
        """The model and all layers in it, each with the one that holds it, or None."""
        raise NotImplementedError

    def spec_of(self, layer: Any) -> _fused_call.LayerSpec | None:
        """What the switch runs a layer with, or None."""
        raise NotImplementedError

    def stepped(self, layer: Any) -> list[Any]:
        """The cells of a layer that run on an op step by step."""
        return []

    def judge(self, layer: Any) -> Judged:
        """Whether a layer or cell runs on the ops."""
        raise NotImplementedError

    def _by_switch(
        self, layer: Any, spec: _fused_call.LayerSpec, reason: str | None, others: str = ""
    ) -> Judged:
        """Of a plain layer, which the switch puts on the op unless there is a reason."""
        if reason:
            return _not_fused(reason)
        if not self.enabled:
            return Judged(False, _SWITCHED_OFF, f"tf_blockrnn.enable_keras(){others}")
        own = _own_call(layer, spec.keras_class)
        return Judged(None, f"{own}: fused where that calls Keras' own") if own else Judged(True)


class Keras3(Library):
    name = "Keras 3"
    model_class = keras.Model
    layer_class = keras.layers.RNN
    cell_classes = (keras.layers.GRUCell, keras.layers.LSTMCell, keras.layers.SimpleRNNCell)

    def __init__(self, enabled: bool):
        self.enabled = enabled

    def parts(self, model: Any) -> list[tuple[Any, Any]]:
        return _fuse.parts_with_owners(model)

    def spec_of(self, layer: Any) -> _fused_call.LayerSpec | None:
        return next((spec for spec in _SPECS if isinstance(layer, spec.keras_class)), None)

    def judge(self, layer: Any) -> Judged:
        if isinstance(layer, (FusedLayer, FusedCell)):
            own = _own_call(layer, keras.Layer)
            if layer.why_not_fused or not own:
                return _not_fused(layer.why_not_fused)
            return Judged(None, f"{own}: fused where that calls tf_blockrnn's")
        spec = self.spec_of(layer)
        if spec is not None:
            reason = _fused_call.why_not_fused(layer, spec)
            return self._by_switch(layer, spec, reason, _or_fuse_model([layer]))
        if isinstance(layer, keras.layers.RNN):
            return self._loop(layer)
        if isinstance(layer, NormalizedCell):
            return _not_fused(_cell_loop.why_no_op(layer) or layer.why_not_fused)
        return self._by_hand(layer) if _cell_loop.spec_of(layer) else _no_op(layer)

    def stepped(self, layer: Any) -> list[Any]:
        if self.spec_of(layer) or not _cell_loop.why_not_fused(layer, self.enabled):
            return []
        cells = _cell_loop.cells_of(layer)
        return [cell for cell in cells if isinstance(cell, FusedCell) and cell.fused]

    def _by_hand(self, cell: Any) -> Judged:
        """Of a cell of Keras that no layer holds."""
        reason = _cell_loop.why_no_op(cell)
        if reason:
            return _not_fused(reason)
        switch = "" if self.enabled else " and tf_blockrnn.enable_keras()"
        change = f"keras.layers.RNN({type(cell).__name__}){switch}"
        return _not_fused(_fusing.Reason(_fusing.BY_STEPS, change + _or_fuse_model([cell])))

    def _loop(self, layer: Any) -> Judged:
        """Of a `keras.layers.RNN`, whose loop is one op for each cell unless there is a reason."""
        cells = _cell_loop.cells_of(layer)
        if all(_cell_loop.spec_of(cell) is None for cell in cells):
            return _no_op(layer)
        reason = _cell_loop.why_not_fused(layer, with_keras_cells=True)
        if not reason and _cell_loop.why_not_fused(layer, with_keras_cells=self.enabled):
            change = f"tf_blockrnn.enable_keras(){_or_fuse_model(cells)}"
            reason = _fusing.Reason(_SWITCHED_OFF, change)
        own = _own_call(layer, keras.layers.RNN)
        if own and not reason:
            return Judged(None, f"{own}: fused where that calls Keras' own")
        return _not_fused(reason)


class TFKeras(Library):
    name = "tf_keras"

    def __init__(self) -> None:
        import tf_keras

        from tf_blockrnn import _enable_tf_keras

        self._switch = _enable_tf_keras
        self.enabled = _enable_tf_keras.enabled()
        self.model_class = tf_keras.Model
        self.layer_class = tf_keras.layers.RNN
        kinds = _keras_private.tf_keras_layers().values()
        self.cell_classes = tuple(cell for _, cells in kinds for cell in cells)

    def parts(self, model: Any) -> list[tuple[Any, Any]]:
        found, seen = [], set()
        queue: list[tuple[Any, Any]] = [(model, None)]
        for part, owner in queue:  # grows
            if id(part) not in seen:
                seen.add(id(part))
                found.append((part, owner))
                queue += [(each, part) for each in _keras_private.held_layers(part)]
        return found

    def spec_of(self, layer: Any) -> _fused_call.LayerSpec | None:
        return self._switch.spec_of(layer)

    def judge(self, layer: Any) -> Judged:
        spec = self.spec_of(layer)
        if spec is None:
            return self._by_steps(layer)
        judged = self._by_switch(layer, spec, self._switch.why_not_fused(layer, spec))
        reason = self._switch.why_not_trained(layer)
        return _not_fused(reason)._replace(fused=None) if judged.fused and reason else judged

    def _by_steps(self, layer: Any) -> Judged:
        """Of a cell, or of a layer that steps cells, which Keras' operations compute."""
        cell = getattr(layer, "cell", layer)
        cells = [each for each in getattr(cell, "cells", [cell]) if type(each) in self.cell_classes]
        if not cells:
            return _no_op(layer)
        name = type(cells[0]).__name__
        change = f"tf_keras.layers.{name.removesuffix('Cell')} in place of RNN({name})"
        switch = "" if self.enabled else " and tf_blockrnn.enable_keras()"
        return _not_fused(_fusing.Reason(_fusing.BY_STEPS, change + switch))


def _package(cls: type) -> str:
    return cls.__module__.split(".")[0]


def _own_call(layer: Any, theirs: type) -> str:
    """Whose method `call` the layer has, if it is neither theirs nor one of this package, or ""."""
    if "call" in vars(layer):
        return "its method call was replaced"
    owner = next(cls for cls in type(layer).__mro__ if "call" in vars(cls))
    known = owner is theirs or _package(owner) == "tf_blockrnn"
    return "" if known else f"{owner.__name__} has its own call"


def _or_fuse_model(layers: list[Any]) -> str:
    """What to add to a change, if `fuse_model` puts those of Keras among these on the ops too."""
    plain = [layer for layer in layers if _package(type(layer)) == "keras"]
    changes = plain and not any(map(_fuse.why_not_changed, plain))
    return ", or tf_blockrnn.fuse_model(model)" if changes else ""


def _not_fused(reason: str | None) -> Judged:
    """Fused where there is no reason."""
    change = reason.change if isinstance(reason, _fusing.Reason) else ""
    return Judged(reason is None, reason or "", change)


def _no_op(layer: Any) -> Judged:
    cell = getattr(layer, "cell", layer)
    return Judged(False, f"there is no op for the cell {type(cell).__name__}")
