"""tf_blockrnn.layers.LayerNormLSTM, LayerNormGRU and their cells."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np
import pytest
from helpers import covering, tolerances
from helpers.compare import assert_close
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    MASK,
    REDUCTION,
    TIME,
    UNITS,
    assert_same,
    op_types,
    sequence,
    values,
)
from helpers.reference import sequence as reference

EPSILON = 0.125
NORMS = ("gamma_x", "beta_x", "gamma_h", "beta_h")
# The cell of the reference, its options, and the names of the weights there, in their order.
KINDS = {
    "LayerNormLSTM": (
        "layer_norm_lstm",
        reference.Options(("i", "f", "ci", "o"), epsilon=EPSILON),
        ("w_x", "w_h", "b", *NORMS, "gamma_c", "beta_c"),
    ),
    "LayerNormGRU": (
        "layer_norm_gru",
        reference.Options(("u", "r", "c"), epsilon=EPSILON),
        ("w_x", "w_h", "biases", *NORMS),
    ),
}
OUTPUT_ONLY = {"norm_output_only": True}
all_kinds = pytest.mark.parametrize("kind", KINDS)


def randomise(layer, seed=11):
    """Random weights; a gamma is about 1."""
    random = np.random.default_rng(seed)
    for weight in layer.weights:
        value = random.normal(0, 0.6, weight.shape)
        weight.assign(1 + value / 2 if weight.name == "gamma" else value)


def make(kind, dtype="float64", **arguments):
    from tf_blockrnn import layers

    arguments.setdefault("norm_epsilon", EPSILON)
    layer = getattr(layers, kind)(UNITS, dtype=dtype, **arguments)
    layer.build((BATCH, TIME, INPUT))
    randomise(layer)
    assert layer.fused, layer.why_not_fused
    return layer


def stepwise(kind, dtype="float64", layer=None, cell=None, **arguments):
    """Keras' RNN over the cell, in Keras' own operations."""
    from tf_blockrnn import layers

    cell = {"norm_epsilon": EPSILON, **(cell or {})}
    rnn = keras.layers.RNN(
        getattr(layers, f"{kind}Cell")(UNITS, dtype=dtype, **cell), dtype=dtype, **arguments
    )
    rnn.build((BATCH, TIME, INPUT))
    if layer is None:
        randomise(rnn)
    else:
        rnn.set_weights(layer.get_weights())
    return rnn


def expected(kind, layer, x, mask=None, **more):
    """Outputs and the last states, by the reference."""
    cell, options, names = KINDS[kind]
    options = dataclasses.replace(options, **more)
    given = dict(zip(names, layer.get_weights(), strict=True))
    if "biases" in given:
        given["b_x"], given["b_h"] = given.pop("biases")
    given["x"] = np.swapaxes(x, 0, 1)
    given |= {name: np.zeros((len(x), UNITS)) for name in ("h_prev", "cs_prev")}
    if mask is not None:
        given["mask"] = mask.T
    found = reference.forward(cell, given, options)
    outputs = np.swapaxes(found["h"], 0, 1)
    states = [found[name] for name in ("h_last", "cs_last") if name in found]
    return [outputs, *states]


@pytest.mark.parametrize(
    ("kind", "own"), [*((kind, {}) for kind in KINDS), ("LayerNormLSTM", OUTPUT_ONLY)]
)
def test_numbers_are_those_of_the_equations(kind, own):
    layer = make(kind, return_sequences=True, return_state=True, **own)
    x = sequence().astype("float64")
    bound = tolerances.composed_bound("float64", REDUCTION)
    for mask in (None, MASK):
        got, want = layer(x, mask=mask), expected(kind, layer, x, mask, **own)
        for name, mine, its in zip("yhc", got, want, strict=False):
            assert_close(mine, its, bound, name)


CELLS = (
    ("LayerNormLSTM", {}),
    ("LayerNormLSTM", OUTPUT_ONLY),
    ("LayerNormLSTM", {"use_bias": False}),
    ("LayerNormGRU", {}),
    ("LayerNormGRU", {"use_bias": False}),
)


@pytest.mark.parametrize(
    ("cell", "dtype", "rate", "masked", "backwards"),
    covering.pairwise(CELLS, ["float32", "float64"], [0.0, 0.3], [False, True], [False, True]),
)
def test_gradients_are_those_of_the_cell(cell, dtype, rate, masked, backwards):
    """Keras' loop over the cell, whose dropout masks are of an equal seed.

    Not any seed: what Keras 3.11 draws from 5 magnifies rounding errors of x thirty times.
    """
    kind, own = cell
    own = {**own, "dropout": rate, "recurrent_dropout": rate, "seed": 6}
    more = {"return_sequences": True, "return_state": True, "go_backwards": backwards}
    layer = make(kind, dtype, **own, **more)
    assert ("bias" in {w.name for w in layer.weights}) == own.get("use_bias", True)
    rnn = stepwise(kind, dtype, layer, cell=own, **more)
    mask = MASK if masked else None
    both = [
        values(each, sequence().astype(dtype), mask=mask, training=True) for each in (layer, rnn)
    ]
    assert_same(*both, dtype=dtype)


@all_kinds
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
def test_low_precision_is_near(kind, dtype):
    from tf_blockrnn import layers

    arguments = {"norm_epsilon": EPSILON, "recurrent_initializer": "zeros"}
    layer = getattr(layers, kind)(UNITS, dtype=dtype, **arguments)
    layer.build((BATCH, TIME, INPUT))
    randomise(layer)
    assert layer.fused
    x = sequence()
    got = np.asarray(keras.ops.cast(layer(x, mask=MASK), "float32"))
    exact = make(kind)
    exact.set_weights([np.asarray(keras.ops.cast(w, "float64")) for w in layer.weights])
    bound = tolerances.composed_bound(dtype.removeprefix("mixed_"), REDUCTION)
    assert_close(got, np.asarray(exact(x, mask=MASK)), bound, dtype)


@all_kinds
def test_the_weights_are_named_and_initialised(kind):
    from tf_blockrnn import layers

    layer = getattr(layers, kind)(UNITS)
    layer.build((BATCH, TIME, INPUT))
    assert layer.cell.norm_epsilon == 1e-3
    names = ["/".join(w.path.split("/")[-2:]) for w in layer.weights[3:]]
    norms = ["kernel_norm", "recurrent_norm", "state_norm"][: len(names) // 2]
    assert names == [f"{norm}/{kind}" for norm in norms for kind in ("gamma", "beta")]
    for weight in layer.weights[3:]:
        assert np.all(np.asarray(weight) == (weight.name == "gamma"))
    assert len({w.path for w in layer.weights}) == len(layer.weights)


@all_kinds
def test_it_runs_on_the_op(tf, kind):
    layer = make(kind, return_sequences=True)

    @tf.function
    def train(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        return tape.gradient(loss, layer.trainable_variables)

    found = op_types(train, tf.constant(sequence()))
    op = f"BlockRNN>{kind}Sequence"
    assert found.count(op) == found.count(f"{op}Grad") == 1
    assert "While" not in found and "StatelessWhile" not in found


@all_kinds
def test_another_activation_runs_on_keras(kind, monkeypatch):
    from tf_blockrnn import layers
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    with pytest.warns(UserWarning, match="activation is relu"):
        layer = getattr(layers, kind)(UNITS, activation="relu", norm_epsilon=EPSILON)
    layer.build((BATCH, TIME, INPUT))
    rnn = stepwise(kind, "float32", layer, cell={"activation": "relu"})
    assert_same([layer(sequence())], [rnn(sequence())])


@all_kinds
@pytest.mark.parametrize("jit", [False, True])
def test_a_bidirectional_model_trains_and_is_loaded(kind, jit, tmp_path):
    from tf_blockrnn import layers

    layer = getattr(layers, kind)
    inputs = keras.Input((None, INPUT))
    y = keras.layers.Bidirectional(layer(UNITS, return_sequences=True))(inputs)
    y = layer(UNITS, stateful=False)(y)
    model = keras.Model(inputs, keras.layers.Dense(1)(y))
    model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
    losses = model.fit(sequence(), np.ones((BATCH, 1)), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(sequence()), model(sequence()))


@all_kinds
def test_a_stateful_layer_goes_on(kind):
    layer, whole = make(kind, stateful=True), make(kind)
    x = sequence().astype("float64")
    first, second = np.asarray(layer(x)), np.asarray(layer(x))
    assert_same([first], [whole(x)], dtype="float64")
    assert_same([second], [whole(np.concatenate([x, x], axis=1))], dtype="float64", steps=2)


@all_kinds
def test_keras_conversions_leave_it_alone(kind, tfb):
    """What converts plain layers must not take it for one."""
    layer = make(kind, "float32")
    model = keras.Sequential([keras.Input((None, INPUT)), layer])
    want = model(sequence())
    assert tfb.fuse_model(model).layers[-1] is layer
    tfb.enable_keras()
    try:
        assert_same([model(sequence())], [want])
    finally:
        tfb.disable_keras()
    with pytest.raises(ValueError, match=f"is of {kind}, which Keras does not have"):
        tfb.unfuse_model(model)
