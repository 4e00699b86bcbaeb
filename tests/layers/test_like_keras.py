"""The constructors of layers and cells: the arguments of the installed Keras, and their own."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
from helpers.layer_pairs import INPUT, KINDS, TIME, UNITS, make_ours, make_peer

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
_NORMS = {
    "norm_gamma_initializer": "ones",
    "norm_beta_initializer": "zeros",
    "norm_epsilon": 1e-3,
}
# The arguments that Keras has not, in their order, and their defaults; those of the layers too.
OWN = {
    "GRU": {"zoneout_h": 0.0},
    "LSTM": {
        "use_peephole": False,
        "cell_clip": None,
        "projection": None,
        "zoneout_h": 0.0,
        "zoneout_c": 0.0,
    },
    "SimpleRNN": {},
    "LayerNormGRU": _NORMS,
    "LayerNormLSTM": {"norm_output_only": False, **_NORMS},
}
# Other values of these arguments.
IN_USE = {
    "zoneout_h": 0.25,
    "zoneout_c": 0.5,
    "use_peephole": True,
    "cell_clip": 2.5,
    "projection": 2,
    "norm_output_only": True,
    "norm_gamma_initializer": "zeros",
    "norm_beta_initializer": "ones",
    "norm_epsilon": 0.5,
    "recompute": 3,
}
# For such an argument how it refuses values, which ones, and those of another type.
_NAN, _INFINITY = float("nan"), float("inf")
_RATE = ("must be a rate in 0..1, got", (-0.1, 1.5, _NAN), ("0.1", None, True))
_FLAG = ("must be a bool, got", (), ("False", None, 1))
REFUSED = {
    "use_peephole": _FLAG,
    "norm_output_only": _FLAG,
    "zoneout_h": _RATE,
    "zoneout_c": _RATE,
    "cell_clip": ("must be a number above 0, or None; got", (0.0, -1.0, _NAN), ("1",)),
    "projection": ("must be an integer above 0, or None; got", (0,), (2.5, "4")),
    "norm_epsilon": ("must be a .*number", (0, 0.0, -1e-3, _NAN, _INFINITY), ("1e-3",)),
}


def keras_class(name: str) -> type:
    return getattr(keras.layers, name.removeprefix("LayerNorm"))


def our_class(name: str) -> type:
    from tf_blockrnn import layers

    return getattr(layers, name)


def own_arguments(name: str) -> dict:
    recompute = {} if name.endswith("Cell") else {"recompute": False}
    return OWN[name.removesuffix("Cell")] | recompute


def parameters(cls: type) -> list[inspect.Parameter]:
    return list(inspect.signature(cls).parameters.values())


@all_classes
def test_shows_the_arguments_of_keras_then_its_own(name):
    *theirs, rest = parameters(keras_class(name))
    theirs = [p for p in theirs if p.name not in WITHOUT[name]]
    ours = parameters(our_class(name))
    assert ours[: len(theirs)] == theirs and ours[-1] == rest
    own = ours[len(theirs) : -1]
    assert all(p.kind is p.KEYWORD_ONLY for p in own)
    assert {p.name: p.default for p in own} == own_arguments(name)
    # As Keras reads them, which makes a config of the arguments.
    spec = inspect.getfullargspec(our_class(name).__init__)
    assert spec.args == ["self", *(p.name for p in theirs)] and spec.varargs is None
    assert spec.varkw == rest.name and spec.kwonlyargs == [p.name for p in own]
    if not name.endswith("Cell"):
        call = inspect.signature(keras_class(name).call).parameters
        assert list(inspect.signature(our_class(name).call).parameters) == [*call, "resets"]


@all_classes
def test_by_position_and_by_name(name):
    cls = our_class(name)
    defaults = {
        p.name: p.default
        for p in parameters(cls)
        if p.default is not p.empty and p.kind is p.POSITIONAL_OR_KEYWORD
    }
    more = {"name": "one"} | ({} if name.endswith("Cell") else {"zero_output_for_mask": True})
    by_name = cls(units=UNITS, **defaults, **more).get_config()
    assert by_name == cls(UNITS, **more).get_config()
    assert by_name == cls(UNITS, *defaults.values(), **more).get_config()
    if "Norm" not in name:
        assert by_name == keras_class(name)(UNITS, **defaults, **more).get_config()
    made = cls(UNITS, "tanh", dropout=0.25)
    assert made.dropout == 0.25 and made.units == UNITS


@pytest.mark.parametrize("cell", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_config_are_those_of_keras(kind, cell):
    shape = (None, INPUT) if cell else (None, TIME, INPUT)
    for options in ({}, {"use_bias": False}):
        both = []
        for make in (make_ours, make_peer):
            keras.utils.set_random_seed(3)
            both.append(make(kind, cell=cell, name="one", **options))
            both[-1].build(shape)
        ours, peer = both
        assert ours.fused and ours.get_config() == peer.get_config()
        for one, other in ((ours, peer), (peer, ours)):
            again = type(one).from_config(other.get_config())
            assert again.get_config() == other.get_config()
        for mine, its in zip(ours.weights, peer.weights, strict=True):
            assert (mine.path, mine.dtype) == (its.path, its.dtype)
            np.testing.assert_array_equal(mine, its)
        if not cell:
            assert ours.compute_output_shape(shape) == peer.compute_output_shape(shape)


@all_classes
def test_keras_saves_and_loads_it(name):
    own = {argument: IN_USE[argument] for argument in own_arguments(name)}
    options = {"dropout": 0.25, "kernel_regularizer": keras.regularizers.L2(0.1), "seed": 3}
    made = our_class(name)(UNITS, **own, **options, name="one")
    config = made.get_config()
    assert own.keys() <= config.keys()
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(made))
    assert type(again) is type(made) and again.get_config() == config
    if own.keys() - {"recompute"} and "Norm" not in name:
        with pytest.raises((TypeError, ValueError), match=next(iter(own))):
            keras_class(name).from_config(config)


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


@all_classes
def test_values_that_are_refused(name):
    for argument in own_arguments(name).keys() & REFUSED.keys():
        words, values, types = REFUSED[argument]
        for error, wrong in ((ValueError, values), (TypeError, types)):
            for value in wrong:
                with pytest.raises(error, match=f"^{name}: {argument} {words}.*{value!r}"):
                    our_class(name)(UNITS, **{argument: value})
    if name in ("GRU", "GRUCell", "LayerNormGRUCell"):
        with pytest.raises(TypeError, match=f"^{name}: reset_after must be a bool, got 'x'"):
            our_class(name)(UNITS, reset_after="x")


@pytest.mark.parametrize("argument", ["use_peephole", "zoneout_h"])
def test_cudnn_has_none_of_its_own(argument):
    with pytest.raises(ValueError, match=f"use_cudnn=True was given together with .*{argument}"):
        our_class("LSTM")(UNITS, **{argument: IN_USE[argument]}, use_cudnn=True)


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
def test_docstrings_have_every_argument(name):
    text = our_class(name).__doc__
    assert "{" not in text
    cell = name.removesuffix("Cell")
    assert ("zoneout" in text) == ("zoneout_h" in OWN[cell])
    if cell != name:
        first = list(inspect.signature(keras_class(name).call).parameters)[1:3]
        assert list(inspect.signature(our_class(name).call).parameters)[1:3] == first
        assert f"  {first[0]}: `[batch, features]`" in text
    for argument in own_arguments(name):
        assert f"{argument}:" in text or f"{argument}, " in text, argument
