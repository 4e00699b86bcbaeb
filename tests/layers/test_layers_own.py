"""What our layers and cells have beyond Keras': peepholes, a cell clip, a projection, zoneout at
inference, layer normalisation. Draws of zoneout are in test_layers_zoneout.py."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import keras
import numpy as np
import pytest
from helpers import covering, run_modes, tolerances
from helpers.compare import assert_close
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    LOOPS,
    MASK,
    REDUCTION,
    TIME,
    UNITS,
    Stepped,
    assert_same,
    op_types,
    sequence,
    values,
)
from helpers.reference import sequence as reference


class Kind(NamedTuple):
    """A class of layers: its op, its cell in the reference, and the order of its gates."""

    op: str
    cell: str
    gates: tuple[str, ...]
    norms: tuple[str, ...] = ()


_LSTM, _GRU = ("i", "f", "ci", "o"), ("u", "r", "c")
KINDS = {
    "LSTM": Kind("LSTMSequence", "lstm", _LSTM),
    "GRU": Kind("GRUAfterSequence", "gru_after", _GRU),
    "GRU before": Kind("GRUSequence", "gru", _GRU),
    "LayerNormLSTM": Kind("LayerNormLSTMSequence", "layer_norm_lstm", _LSTM, ("x", "h", "c")),
    "LayerNormGRU": Kind("LayerNormGRUSequence", "layer_norm_gru", _GRU, ("x", "h")),
}
_PEEPHOLE, _CLIP, _PROJECTION = {"use_peephole": True}, {"cell_clip": 0.19}, {"projection": 2}
_ZONEOUT = {"zoneout_h": 0.3, "zoneout_c": 0.4}  # no numbers of float32, nor is the clip
_EPSILON = {"norm_epsilon": 0.1}  # large enough to be seen
VARIANTS = {
    "peepholes": ("LSTM", _PEEPHOLE),
    "clip": ("LSTM", _CLIP),
    "projection": ("LSTM", _PROJECTION),
    "peepholes, projection": ("LSTM", _PEEPHOLE | _PROJECTION),
    "peepholes, clip, projection": ("LSTM", _PEEPHOLE | _CLIP | _PROJECTION),
    "extended": ("LSTM", _PEEPHOLE | _CLIP | _PROJECTION | _ZONEOUT),
    "zoneout": ("LSTM", _ZONEOUT),
    "zoneout of a GRU": ("GRU", {"zoneout_h": 0.3}),
    "zoneout of a GRU before": ("GRU before", {"zoneout_h": 0.3, "reset_after": False}),
    "norms": ("LayerNormLSTM", _EPSILON),
    "norms, of the output": ("LayerNormLSTM", {**_EPSILON, "norm_output_only": True}),
    "norms of a GRU": ("LayerNormGRU", _EPSILON),
}
variants = pytest.mark.parametrize("variant", VARIANTS)
DTYPES = ("float16", "bfloat16", "mixed_float16", "float32")


def randomise(layer, seed=11):
    """Random weights; a gamma is about 1."""
    random = np.random.default_rng(seed)
    for weight in layer.weights:
        value = random.normal(0, 0.6, weight.shape)
        weight.assign(1 + value / 2 if weight.name == "gamma" else value)


def unbuilt(variant, dtype="float64", cell=False, **arguments):
    from tf_blockrnn import layers

    kind, own = VARIANTS[variant]
    made = getattr(layers, kind.partition(" ")[0] + "Cell" * cell)
    # Keras' own initializer knows no bfloat16.
    initializer = {"recurrent_initializer": "glorot_uniform"}
    return made(UNITS, dtype=dtype, **initializer, **own, **arguments)


def make(variant, dtype="float64", **arguments):
    """A layer with random weights."""
    layer = unbuilt(variant, dtype, **arguments)
    layer.build((BATCH, TIME, INPUT))
    randomise(layer)
    return layer


def expected(variant, layer, x, mask):
    """Outputs and the last states, by the reference."""
    (name, own), weights = VARIANTS[variant], [np.asarray(w, "float64") for w in layer.weights]
    kind = KINDS[name]
    given = dict(zip(("w_x", "w_h", "b"), weights, strict=False))
    if name in ("GRU", "LayerNormGRU"):
        given["b_x"], given["b_h"] = given.pop("b")
    elif name == "GRU before":
        given["b_x"], given["b_h"] = given.pop("b"), np.zeros(3 * UNITS)
    names = ["wci", "wcf", "wco"] * ("use_peephole" in own) + ["w_p"] * ("projection" in own)
    names += [f"{what}_{of}" for of in kind.norms for what in ("gamma", "beta")]
    given |= zip(names, weights[3:], strict=True)
    states = {"h_prev": np.zeros((len(x), len(given["w_h"]))), "cs_prev": np.zeros((len(x), UNITS))}
    given |= {"x": np.swapaxes(x, 0, 1), "mask": mask.T, **states}
    options = {name: own[name] for name in ("cell_clip", "norm_output_only") if name in own}
    options |= {"epsilon": own["norm_epsilon"]} if kind.norms else {}
    rates = own.get("zoneout_h", 0.0), own.get("zoneout_c", 0.0)
    options = reference.Options(kind.gates, zoneout_rates=rates, **options)
    found = reference.forward(kind.cell, given, options)
    last = [found[name] for name in ("h_last", "cs_last") if name in found]
    return [np.swapaxes(found["h"], 0, 1), *last]


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [*((variant, "float64") for variant in VARIANTS), *covering.in_turn(VARIANTS, DTYPES)],
)
def test_numbers_are_those_of_the_equations(variant, dtype):
    layer = make(variant, dtype, return_sequences=True, return_state=True)
    assert layer.fused, layer.why_not_fused
    x = np.asarray(keras.ops.cast(sequence(), layer.compute_dtype), "float64")
    bound = tolerances.composed_bound(dtype.removeprefix("mixed_"), REDUCTION)
    for mask in (None, MASK):
        got = layer(x, mask=mask)
        want = expected(variant, layer, x, np.ones_like(MASK) if mask is None else mask)
        for number, (mine, its) in enumerate(zip(got, want, strict=True)):
            mine = np.asarray(keras.ops.cast(mine, "float64"))
            assert_close(mine, its, bound, f"output {number}")
    assert layer.compute_output_shape((BATCH, TIME, INPUT)) == tuple(y.shape for y in got)


BOOLS = [False, True]


@pytest.mark.parametrize(
    ("variant", "dtype", "rate", "bias", "masked", "backwards"),
    covering.pairwise(VARIANTS, ["float64", "float32"], [0.0, 0.3], *[BOOLS] * 3),
)
def test_gradients_are_those_of_keras_own_operations(variant, dtype, rate, bias, masked, backwards):
    """The same layer on its other path; the masks of dropout are of equal seeds.

    Not any seed: what Keras 3.11 draws from 5 magnifies rounding errors of x thirty times. Draws of
    zoneout would not be the same.
    """
    from tf_blockrnn.layers import _fused_call

    arguments = {"dropout": rate, "recurrent_dropout": rate, "seed": 6, "use_bias": bias}
    arguments |= {"return_sequences": True, "return_state": True, "go_backwards": backwards}
    ours, slow = (make(variant, dtype, **arguments) for _ in range(2))
    call = {"x": sequence().astype(dtype), "mask": MASK if masked else None}
    call["training"] = "zoneout_h" not in VARIANTS[variant][1]
    assert ours.fused and ("bias" in {w.name for w in ours.weights}) == bias
    mine = values(ours, **call)
    with _fused_call.without_ops():
        assert_same(mine, values(slow, **call), dtype=dtype)


@pytest.mark.parametrize("mode", run_modes.MODES)
@pytest.mark.parametrize(
    "variant", ["extended", *(v for v in VARIANTS if "of a GRU" in v or v.startswith("norms"))]
)
def test_second_derivatives_are_those_of_keras_own_operations(tf, variant, mode):
    """Of float64, to its last digits: the ops have all bits of a rate, a clip and an epsilon."""
    from tf_blockrnn.layers import _fused_call

    ours, slow = (make(variant, return_sequences=True) for _ in range(2))
    assert ours.fused

    def derivatives(layer, x):
        inputs = [x, *layer.trainable_variables]
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                outputs = layer(x, mask=MASK)
                loss = tf.reduce_sum(tf.sin(outputs))
            first = inner.gradient(loss, inputs)
            penalty = tf.add_n([tf.reduce_sum(tf.sin(gradient)) for gradient in first])
        return [outputs, *first, *outer.gradient(penalty, inputs)]

    x = tf.constant(sequence(), tf.float64)
    got = run_modes.in_mode(mode, lambda x: derivatives(ours, x))(x)
    with _fused_call.without_ops():
        want = derivatives(slow, x)
    bound = tolerances.second_bound("double", REDUCTION)
    for number, (mine, its) in enumerate(zip(got, want, strict=True)):
        assert_close(mine, its, bound, f"value {number}")


@pytest.mark.parametrize("activation", ["tanh", "softsign"])
@pytest.mark.parametrize("loop", [keras.layers.RNN, Stepped])
@variants
def test_cells_have_the_numbers_of_the_layer(variant, activation, loop):
    """On an op, on ops for each step, and on Keras' own operations, which leave none of it out."""
    layer = make(variant, activation=activation)
    cell = unbuilt(variant, cell=True, activation=activation)
    stepwise = loop(cell, dtype="float64")
    stepwise.build((BATCH, TIME, INPUT))
    stepwise.set_weights(layer.get_weights())
    assert layer.fused == (activation == "tanh")
    assert "norm" in variant or cell.fused == layer.fused
    x = sequence().astype("float64")
    assert_same(*(values(each, x, mask=MASK) for each in (layer, stepwise)), dtype="float64")


_NORMS = ("kernel_norm/gamma", "kernel_norm/beta", "recurrent_norm/gamma", "recurrent_norm/beta")
NAMES = {
    "peepholes": ("wci", "wcf", "wco"),
    "projection": ("w_p",),
    "peepholes, projection": ("wci", "wcf", "wco", "w_p"),
    "zoneout": (),
    "norms": (*_NORMS, "state_norm/gamma", "state_norm/beta"),
    "norms of a GRU": _NORMS,
}


@pytest.mark.parametrize("variant", NAMES)
def test_weights_are_named_and_initialised(variant):
    cell = unbuilt(variant, cell=True)
    cell.build((BATCH, INPUT))
    for weight in cell.weights:
        assert "_norm/" not in weight.path or np.all(np.asarray(weight) == (weight.name == "gamma"))
    layer = make(variant, dropout=0.1)
    names = ["kernel", "recurrent_kernel", "bias", *NAMES[variant]]
    paths = [w.path for w in layer.weights]
    assert all(p.endswith(f"/{name}") for p, name in zip(paths, names, strict=True))
    assert len(set(paths)) == len(names)
    # Of Keras' own cell, which was in this one's place, nothing is left.
    assert len(layer.variables) == len(names) + 1, "the state of one seed generator and no more"


@pytest.mark.parametrize("variant", ["projection", "zoneout", "norms", "norms of a GRU"])
def test_a_stateful_layer_goes_on(variant):
    layer, whole = make(variant, stateful=True), make(variant)
    width = VARIANTS[variant][1].get("projection", UNITS)
    shapes = [(BATCH, width), (BATCH, UNITS)][: len(layer.states)]
    assert [tuple(state.shape) for state in layer.states] == shapes
    x = sequence().astype("float64")
    first, second = np.asarray(layer(x)), np.asarray(layer(x))
    assert_same([first], [whole(x)], dtype="float64")
    assert_same([second], [whole(np.concatenate([x, x], axis=1))], dtype="float64", steps=2)


@pytest.mark.parametrize("variant", ["extended", "zoneout of a GRU", "norms", "norms of a GRU"])
def test_it_runs_on_the_op(tf, variant):
    layer = make(variant, return_sequences=True)

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, training=True))
        return tape.gradient(loss, layer.trainable_variables)

    found = op_types(train, tf.constant(sequence()))
    op = f"BlockRNN>{KINDS[VARIANTS[variant][0]].op}"
    assert found.count(op) == found.count(f"{op}Grad") == 1 and not LOOPS & set(found)


@pytest.mark.parametrize(
    ("variant", "jit"), itertools.product(["extended", "norms", "norms of a GRU"], BOOLS)
)
def test_a_bidirectional_model_trains_and_is_loaded(variant, jit, tmp_path):
    inputs = keras.Input((None, INPUT))
    y = keras.layers.Bidirectional(unbuilt(variant, "float32", return_sequences=True))(inputs)
    width = VARIANTS[variant][1].get("projection", UNITS)
    assert y.shape == (None, None, 2 * width)
    model = keras.Model(inputs, keras.layers.Dense(1)(unbuilt(variant, "float32")(y)))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
    losses = model.fit(sequence(), np.ones((BATCH, 1)), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(sequence()), model(sequence()))


@pytest.mark.parametrize("variant", ["norms", "norms of a GRU"])
def test_keras_conversions_leave_it_alone(tfb, variant):
    """What converts plain layers must not take it for one."""
    layer = make(variant, "float32")
    model = keras.Sequential([keras.Input((None, INPUT)), layer])
    want = model(sequence())
    assert tfb.fuse_model(model).layers[-1] is layer
    with tfb.enable_keras():
        assert_same([model(sequence())], [want])
    with pytest.raises(ValueError, match=f"is of {type(layer).__name__}, which Keras does not"):
        tfb.unfuse_model(model)


def test_cudnn_is_not_asked_for_what_it_lacks(tf, tfb, monkeypatch):
    """With a GPU, Keras' path would hand three of the weights to cuDNN and forget the others."""
    from keras.src import backend

    def refuse(*args, **kwargs):
        raise AssertionError("cuDNN was asked")

    layer = make("peepholes")
    layer.use_cudnn = "auto"  # as keras.layers.Bidirectional does with a layer that it is given
    want = layer(sequence())
    monkeypatch.setattr(backend, "lstm", refuse)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind=None: ["a GPU"])
    monkeypatch.setattr(tfb._loader, "missing_cuda", lambda: "no nvcc")
    assert "GPU" in layer.why_not_fused
    assert_same([layer(sequence())], [want], dtype="float64")
    plain = tfb.layers.LSTM(UNITS)
    with pytest.raises(AssertionError, match="cuDNN was asked"):
        plain(sequence())
