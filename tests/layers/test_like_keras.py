"""The constructors of layers and cells: the arguments of the installed Keras, and their own."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("tfb")

UNITS = 4
BASES = ("GRU", "LSTM", "SimpleRNN")
# For each class the arguments of Keras' that it does not have.
WITHOUT = {
    **{name + cell: set() for name in BASES for cell in ("", "Cell")},
    "LayerNormGRU": {"reset_after", "use_cudnn"},
    "LayerNormLSTM": {"use_cudnn"},
    "LayerNormGRUCell": set(),
    "LayerNormLSTMCell": set(),
}
all_classes = pytest.mark.parametrize("name", WITHOUT)


def keras_class(name: str) -> type:
    return getattr(keras.layers, name.removeprefix("LayerNorm"))


def our_class(name: str) -> type:
    from tf_blockrnn import layers

    return getattr(layers, name)


def parameters(cls: type) -> list[inspect.Parameter]:
    return list(inspect.signature(cls).parameters.values())


@all_classes
def test_shows_the_arguments_of_keras_then_its_own(name):
    *theirs, rest = parameters(keras_class(name))
    theirs = [p for p in theirs if p.name not in WITHOUT[name]]
    ours = parameters(our_class(name))
    assert ours[: len(theirs)] == theirs and ours[-1] == rest
    own = ours[len(theirs) : -1]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in own)
    assert ("recompute" in [p.name for p in own]) == (not name.endswith("Cell"))
    # As Keras reads them, which makes a config of the arguments.
    spec = inspect.getfullargspec(our_class(name).__init__)
    assert spec.args == ["self", *(p.name for p in theirs)] and spec.varargs is None
    assert spec.varkw == rest.name and spec.kwonlyargs == [p.name for p in own]


@all_classes
def test_by_position_and_by_name(name):
    cls = our_class(name)
    defaults = {
        p.name: p.default
        for p in parameters(cls)
        if p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    }
    configs = [
        made.get_config()
        for made in (
            cls(UNITS, name="one"),
            cls(units=UNITS, **defaults, name="one"),
            cls(UNITS, *defaults.values(), name="one"),
        )
    ]
    assert configs[0] == configs[1] == configs[2]
    made = cls(UNITS, "tanh", dropout=0.25)
    assert made.dropout == 0.25 and made.units == UNITS


@all_classes
@pytest.mark.parametrize("extra", [{}, {"zoneout_h": 0.5}], ids=str)
def test_wrong_arguments(name, extra):
    cls = our_class(name)
    if extra and "zoneout_h" not in inspect.signature(cls).parameters:
        extra = {}
    with pytest.raises(TypeError, match=r"missing a? ?.*'units'"):
        cls(**extra)
    with pytest.raises(TypeError, match="multiple values for argument 'units'"):
        cls(UNITS, units=UNITS, **extra)
    with pytest.raises((TypeError, ValueError), match="wrong"):
        cls(UNITS, wrong=1, **extra)
    for argument in WITHOUT[name]:
        with pytest.raises(TypeError, match=f"{name} has no argument '{argument}'"):
            cls(UNITS, **{argument: True})


@pytest.mark.parametrize("name", BASES)
def test_a_cell_has_the_defaults_of_its_layer(name):
    """Those of a cell of our own are the cell's; Keras gives its cell those of the layer."""
    layer, cell = (inspect.signature(keras_class(name + end)).parameters for end in ("", "Cell"))
    common = layer.keys() & cell.keys()
    assert {"units", "activation", "dropout", "seed"} <= common
    assert {n: layer[n].default for n in common} == {n: cell[n].default for n in common}


@pytest.mark.parametrize("name", BASES)
def test_another_version_of_keras(name):
    """A layer is made over classes with one argument more, as the next Keras may have."""
    from tf_blockrnn.layers._fused_layer import FusedLayer
    from tf_blockrnn.layers._like_keras import like_keras

    base = keras_class(name)

    class Next(base):
        def __init__(self, units, activation="tanh", gain=1.0, **kwargs):
            super().__init__(units, activation, **kwargs)
            self.gain = gain

    class Ours(FusedLayer, Next):
        """Of `{keras}`, with c:

        Args:
          {zoneout_c}
        """

        _SPEC = our_class(name)._SPEC

        def __init__(self, *args, recompute=False, **kwargs):
            self._construct(args, kwargs, {}, recompute)

    made = like_keras(Next)(Ours)
    shown = [p.name for p in parameters(made)]
    assert shown == ["units", "activation", "gain", "recompute", "kwargs"]
    assert made(UNITS, "tanh", 2.0, recompute=True).gain == 2.0
    assert made(UNITS, gain=3.0).gain == 3.0
    assert "zoneout_c: the same" in made.__doc__ and "Of `Next`" in made.__doc__
    assert keras.saving.get_registered_name(made) == "tf_blockrnn>Ours"


@all_classes
def test_keras_saves_and_loads_it(name):
    made = our_class(name)(UNITS, dropout=0.25, name="one")
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made))
    assert type(again) is type(made) and again.get_config() == made.get_config()


@all_classes
def test_subclasses_with_a_constructor_of_their_own(name):
    class Mine(our_class(name)):
        def __init__(self, units, scale=2.0, **kwargs):
            super().__init__(units, **kwargs)
            self.scale = scale

    mine = Mine(UNITS, scale=3.0, dropout=0.5)
    assert mine.scale == 3.0 and mine.dropout == 0.5
    x = np.ones((2, 3, 5), "float32")
    layer = keras.layers.RNN(mine) if name.endswith("Cell") else mine
    assert layer(x).shape == (2, UNITS)


@all_classes
def test_docstrings_are_whole(name):
    text = our_class(name).__doc__
    assert "{" not in text
    for section in ("Args:", "Call arguments:", "Returns:", "Raises:", "Example:"):
        assert f"\n{section}\n" in text, section
    own = [p.name for p in parameters(our_class(name)) if p.kind is p.KEYWORD_ONLY]
    for argument in own:
        assert f"{argument}:" in text or f"{argument}, " in text, argument
