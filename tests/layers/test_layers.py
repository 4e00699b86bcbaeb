"""The Keras cells: same arguments, weights, config and numbers as Keras' own, and really fused."""

from __future__ import annotations

import doctest
import inspect
import warnings

import keras
import numpy as np
import pytest
from helpers import cell_pairs, tolerances
from helpers.cell_pairs import (
    BATCH,
    INPUT,
    KINDS,
    REDUCTION,
    TIME,
    UNITS,
    class_name,
    layer_pair,
    make_ours,
    make_peer,
    randomise,
    sequence,
)
from helpers.children import assert_ok, run_python
from helpers.compare import assert_close
from helpers.layer_pairs import needs_a_rate_of_one
from helpers.reference import block_ops


@pytest.fixture(autouse=True)
def _package(tfb):
    keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")


# ---- arguments, weights, config


@pytest.mark.parametrize("kind", KINDS)
def test_takes_every_argument_of_keras(kind):
    parameters = inspect.signature(getattr(keras.layers, class_name(kind))).parameters
    defaults = {
        name: p.default
        for name, p in parameters.items()
        if p.default is not inspect.Parameter.empty
    }
    if kind == "GRU-before":
        defaults["reset_after"] = False
    if kind == "RNN-relu":
        defaults["activation"] = "relu"
    by_name = make_ours(kind, **defaults, name="cell").get_config()
    by_position = type(make_ours(kind))(UNITS, *defaults.values(), name="cell").get_config()
    assert set(defaults) <= set(by_name)
    assert by_position == by_name
    ours = inspect.signature(type(make_ours(kind))).parameters
    assert {n: ours[n].default for n in parameters} == {
        n: parameters[n].default for n in parameters
    }
    assert list(ours)[: len(parameters) - 1] == list(parameters)[:-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use_bias", [True, False])
def test_weights_and_config_are_those_of_keras(kind, use_bias):
    ours, peer = (make(kind, use_bias=use_bias, name="cell") for make in (make_ours, make_peer))
    assert ours.get_config() == peer.get_config()
    for cell in (ours, peer):
        cell.build((None, INPUT))
    assert [(w.name, tuple(w.shape), w.dtype) for w in ours.weights] == [
        (w.name, tuple(w.shape), w.dtype) for w in peer.weights
    ]
    assert ours.fused


def test_initial_weights_are_those_of_keras():
    for kind in KINDS:
        cells = []
        for make in (make_ours, make_peer):
            keras.utils.set_random_seed(3)
            cells.append(make(kind))
            cells[-1].build((None, INPUT))
        for mine, its in zip(*(cell.get_weights() for cell in cells), strict=True):
            np.testing.assert_array_equal(mine, its)


def test_config_round_trip():
    cell = make_ours("LSTM", use_peephole=True, cell_clip=2.5, dropout=0.1, seed=3)
    again = type(cell).from_config(cell.get_config())
    assert again.get_config() == cell.get_config()
    assert again.use_peephole and again.cell_clip == 2.5
    for kind in KINDS:
        cell = make_ours(kind, kernel_regularizer=keras.regularizers.L2(0.1))
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(cell))
        assert type(again) is type(cell) and again.get_config() == cell.get_config()
        # A plain cell's config is one that Keras' own cell takes, and the other way round.
        peer = getattr(keras.layers, class_name(kind)).from_config(cell.get_config())
        assert type(cell).from_config(peer.get_config()).get_config() == cell.get_config()


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_refuses_a_clip_that_is_not_above_zero(clip):
    with pytest.raises(ValueError, match="cell_clip"):
        make_ours("LSTM", cell_clip=clip)


# ---- numbers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_outputs_and_gradients_equal_keras(tf, kind, dtype):
    ours, peer = layer_pair(kind, dtype, return_sequences=True, return_state=True)
    x = tf.constant(sequence(), dtype)

    def run(layer):
        with tf.GradientTape() as tape:
            tape.watch(x)
            outputs = layer(x)
            loss = tf.add_n([tf.reduce_sum(tf.sin(y)) for y in outputs])
        return [*outputs, *tape.gradient(loss, [x, *layer.trainable_variables])]

    want = run(peer)
    bound = tolerances.composed_bound(dtype, REDUCTION)
    for mode, step in (("eager", run), ("graph", tf.function(run))):
        for number, (mine, its) in enumerate(zip(step(ours), want, strict=True)):
            assert mine.dtype == its.dtype
            assert_close(mine, its, bound, f"{kind} {mode} value {number}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments",
    [
        {"unroll": True},
        {"go_backwards": True, "return_sequences": True},
        {"cell": {"use_bias": False}},
    ],
    ids=str,
)
def test_layer_options_equal_keras(tf, kind, arguments):
    ours, peer = layer_pair(kind, **arguments)
    x = sequence()
    bound = tolerances.composed_bound("float32", REDUCTION)
    assert ours.cell.fused
    assert_close(ours(x), peer(x), bound)
    assert_close(tf.function(ours)(x), peer(x), bound)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zero", [True, False])
def test_masks_equal_keras(kind, zero):
    ours, peer = layer_pair(kind, return_sequences=True, zero_output_for_mask=zero)
    mask = np.array([[1, 1, 1, 0, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 0]], bool)
    x = sequence()
    bound = tolerances.composed_bound("float32", REDUCTION)
    assert_close(ours(x, mask=mask), peer(x, mask=mask), bound)


@pytest.mark.parametrize("kind", KINDS)
def test_stateful_layer_goes_on(kind):
    ours, peer = layer_pair(kind, stateful=True)
    x = sequence()
    bound = tolerances.composed_bound("float32", 2 * REDUCTION)
    assert_close(ours(x), peer(x), bound)
    second = ours(x)
    assert_close(second, peer(x), bound)
    ours.reset_states()
    assert np.abs(np.asarray(ours(x)) - np.asarray(second)).max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(kind, policy):
    keras.config.set_dtype_policy(policy)
    ours, peer = layer_pair(kind, policy)
    assert ours.cell.fused
    assert {w.dtype for w in ours.weights} == {"float32"}
    mine, its = ours(sequence()), peer(sequence())
    assert mine.dtype == its.dtype
    assert_close(mine, its, tolerances.composed_bound(its.dtype, REDUCTION))


@pytest.mark.parametrize("kind", KINDS)
def test_cell_on_its_own(kind):
    ours, peer = make_ours(kind), make_peer(kind)
    for cell in (ours, peer):
        cell.build((None, INPUT))
    randomise(ours)
    peer.set_weights(ours.get_weights())
    random = np.random.default_rng(2)
    x = random.normal(size=(BATCH, INPUT)).astype("float32")
    states = [random.normal(size=(BATCH, UNITS)).astype("float32") for _ in range(2)]
    bound = tolerances.composed_bound("float32", INPUT + UNITS)
    for given in [states] if kind == "LSTM" else [states[0], states[:1]]:
        mine, its = ours(x, given), peer(x, given)
        assert isinstance(mine[1], list) == isinstance(its[1], list)
        for a, b in zip(keras.tree.flatten(mine), keras.tree.flatten(its), strict=True):
            assert_close(a, b, bound)


@pytest.mark.parametrize("kind", KINDS)
def test_complex_numbers_are_refused(tf, kind):
    cell = make_ours(kind)
    real = tf.ones([BATCH, INPUT]), [tf.ones([BATCH, UNITS])] * (2 if kind == "LSTM" else 1)
    cell(*real)
    imaginary = tf.nest.map_structure(lambda tensor: tf.complex(tensor, tensor), real)
    for given in ((imaginary[0], real[1]), (real[0], imaginary[1])):
        with pytest.raises(ValueError, match="must be real numbers, got complex64"):
            cell(*given)


DROPOUTS = [
    {"dropout": 0.5},
    {"recurrent_dropout": 0.5},
    {"dropout": 0.25, "recurrent_dropout": 0.5},
    {"dropout": 0.5, "implementation": 1},
    {"dropout": 1.0, "recurrent_dropout": 1.0},
]


@pytest.mark.types
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", DROPOUTS, ids=str)
@pytest.mark.parametrize("unroll", [True, False])
def test_dropout_equals_keras(tf, kind, arguments, unroll):
    if kind.startswith("RNN") and "implementation" in arguments:
        pytest.skip("Keras' cell has no implementations")
    needs_a_rate_of_one(*arguments.values())
    ours, peer = layer_pair(kind, cell={**arguments, "seed": 13}, unroll=unroll)
    x = sequence()
    bound = tolerances.composed_bound("float32", REDUCTION)
    assert ours.cell.fused
    # A call may draw a mask even when it does not train, so the calls of both must keep pace.
    assert_close(ours(x), peer(x), bound)

    def train(layer):
        with tf.GradientTape() as tape:
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.sin(y))
        return [y, *tape.gradient(loss, layer.trainable_variables)]

    for run in (train, tf.function(train)):
        for _ in range(2):
            for mine, its in zip(run(ours), run(peer), strict=True):
                assert_close(mine, its, bound)


@pytest.mark.parametrize("kind", ["GRU", "GRU-before", "LSTM"])
def test_implementation_1_equals_keras(tf, kind):
    ours, peer = layer_pair(kind, cell={"implementation": 1})
    bound = tolerances.composed_bound("float32", REDUCTION)
    assert ours.cell.fused
    assert_close(ours(sequence()), peer(sequence()), bound)


def test_inputs_of_another_rank_are_those_of_keras(tf):
    ours, peer = make_ours("RNN-tanh"), make_peer("RNN-tanh")
    x, h = tf.ones([2, 3, INPUT]), tf.ones([2, 3, UNITS])
    for cell in (ours, peer):
        cell.build((None, 3, INPUT))
    peer.set_weights(ours.get_weights())
    np.testing.assert_array_equal(ours(x, [h])[0], peer(x, [h])[0])


def test_projection_equals_keras_operations(tf):
    from tf_blockrnn.layers._extended_lstm_cell import ExtendedLSTMCell

    arguments = {"projection": 3, "use_peephole": True, "cell_clip": 0.5, "dtype": "float64"}
    ours, peer = make_ours("LSTM", **arguments), ExtendedLSTMCell(UNITS, **arguments)
    layers = [keras.layers.RNN(cell, dtype="float64") for cell in (ours, peer)]
    for layer in layers:
        layer.build((BATCH, TIME, INPUT))
    randomise(layers[0])
    layers[1].set_weights(layers[0].get_weights())
    assert ours.fused
    bound = tolerances.composed_bound("float64", REDUCTION)
    assert_close(layers[0](sequence()), layers[1](sequence()), bound)


@pytest.mark.parametrize("use_peephole", [True, False])
@pytest.mark.parametrize("cell_clip", [None, 0.25])
def test_peepholes_and_clip(use_peephole, cell_clip):
    cell = make_ours("LSTM", dtype="float64", use_peephole=use_peephole, cell_clip=cell_clip)
    cell.build((None, INPUT))
    names = ["kernel", "recurrent_kernel", "bias"] + ["wci", "wcf", "wco"] * use_peephole
    assert [w.name for w in cell.weights] == names
    randomise(cell)
    kernel, recurrent, bias, *peepholes = cell.get_weights()
    i, f, c, o = np.split(np.concatenate([kernel, recurrent]), 4, axis=1)
    b_i, b_f, b_c, b_o = np.split(bias, 4)
    x = sequence().astype("float64")
    h = cs = np.zeros((BATCH, UNITS))
    unused = dict.fromkeys(("wci", "wcf", "wco"), np.zeros(UNITS))
    for t in range(TIME):
        step = block_ops.lstm_block_cell(
            x=x[:, t],
            cs_prev=cs,
            h_prev=h,
            w=np.concatenate([i, c, f, o], axis=1),
            **unused | dict(zip(names[3:], peepholes, strict=True)),
            b=np.concatenate([b_i, b_c, b_f, b_o]),
            forget_bias=0.0,
            cell_clip=cell_clip or 0.0,
            use_peephole=use_peephole,
        )
        cs, h = step[1], step[-1]
    layer = keras.layers.RNN(cell, return_state=True, dtype="float64")
    got = layer(x)
    bound = tolerances.composed_bound("float64", REDUCTION)
    assert_close(got[0], h, bound, "h")
    assert_close(got[2], cs, bound, "c")
    assert (np.abs(cs).max() <= 0.25) == (cell_clip is not None)


# ---- in models


def bidirectional_stack(make, kind):
    inputs = keras.Input((None, INPUT))
    cells = [make(kind, units) for units in (5, 4)]
    y = keras.layers.RNN(cells, return_sequences=True)(inputs)
    y = keras.layers.Bidirectional(keras.layers.RNN(make(kind)))(y)
    return keras.Model(inputs, keras.layers.Dense(1)(y))


@pytest.mark.types
@pytest.mark.parametrize("kind", KINDS)
def test_stacked_bidirectional_model_trains_saves_and_exports(tf, kind, tmp_path):
    ours, peer = bidirectional_stack(make_ours, kind), bidirectional_stack(make_peer, kind)
    randomise(ours)
    peer.set_weights(ours.get_weights())
    x, y = sequence(8), np.ones((8, 1), "float32")
    losses = []
    for model in (ours, peer):
        model.compile(keras.optimizers.SGD(0.05), "mse")
        losses.append(model.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0))
    bound = tolerances.composed_bound("float32", 6 * REDUCTION)
    assert_close(losses[0].history["loss"], losses[1].history["loss"], bound)
    assert losses[0].history["loss"][-1] < losses[0].history["loss"][0]
    want = np.asarray(ours(x))
    assert_close(want, peer(x), bound)

    ours.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(x), want)
    clone = keras.models.clone_model(ours)
    clone.set_weights(ours.get_weights())
    np.testing.assert_array_equal(clone(x), want)
    ours.export(tmp_path / "exported")
    exported = tf.saved_model.load(tmp_path / "exported")
    assert_close(exported.serve(x), want, tolerances.composed_bound("float32", 2 * REDUCTION))


def test_saved_model_loads_in_a_fresh_process(tmp_path):
    cell = make_ours("LSTM", use_peephole=True)
    model = keras.Sequential([keras.Input((TIME, INPUT)), keras.layers.RNN(cell)])
    randomise(model)
    model.save(tmp_path / "model.keras")
    program = (
        "import sys, keras, numpy as np, tf_blockrnn.layers\n"
        "model = keras.saving.load_model(sys.argv[1] + '/model.keras')\n"
        f"np.save(sys.argv[1] + '/y.npy', model(np.ones({(1, TIME, INPUT)}, 'float32')))\n"
    )
    assert_ok(run_python(["-c", program, str(tmp_path)], timeout=120), "loading the model")
    want = model(np.ones((1, TIME, INPUT), "float32"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)


# ---- fused where it can be, and saying so where not

UNFUSED = [
    ("GRU", {"activation": "relu"}, "activation is relu"),
    ("GRU-before", {"recurrent_activation": "hard_sigmoid"}, "recurrent_activation is hard_sigm"),
    ("LSTM", {"activation": None}, "activation is linear"),
    ("RNN-tanh", {"activation": "gelu"}, "activation is gelu, the op has tanh and relu"),
]


@pytest.mark.parametrize(("kind", "arguments", "reason"), UNFUSED, ids=str)
def test_takes_keras_maths_and_says_so_once(monkeypatch, kind, arguments, reason):
    from tf_blockrnn.layers import _fusing

    monkeypatch.setattr(_fusing, "_warned", set())
    with pytest.warns(UserWarning, match=f"{class_name(kind)}.*{reason}") as said:
        ours, peer = layer_pair(kind, cell=arguments)
    assert [w.filename for w in said] == [cell_pairs.__file__]  # who made the cell
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_ours(kind, **arguments)
    assert not ours.cell.fused and reason in ours.cell.why_not_fused
    x = sequence()
    for training in (False, True):
        np.testing.assert_array_equal(ours(x, training=training), peer(x, training=training))


def test_fused_cells_say_nothing(tfb):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            assert make_ours(kind).why_not_fused is None
            assert make_ours(kind, activation=keras.ops.tanh).fused
        for kind in ("GRUCell", "LSTMCell", "SimpleRNNCell"):
            assert getattr(tfb.layers, kind)(UNITS).fused


@pytest.mark.parametrize("extra", [{"use_peephole": True}, {"cell_clip": 0.125}], ids=str)
@pytest.mark.parametrize("other", [{"activation": "relu"}], ids=str)
@pytest.mark.filterwarnings("ignore:tf_blockrnn")
def test_keras_maths_leaves_out_no_peepholes_and_no_clip(extra, other):
    layers = [keras.layers.RNN(make_ours("LSTM", **other, **more)) for more in (extra, {})]
    for layer in layers:
        layer.build((BATCH, TIME, INPUT))
    randomise(layers[0])
    layers[1].set_weights(layers[0].get_weights()[:3])
    assert not layers[0].cell.fused
    with_extra, without = (np.asarray(layer(sequence())) for layer in layers)
    assert np.abs(with_extra - without).max() > 1e-3


# ---- documentation


@pytest.mark.parametrize(
    "module", ["gru_cell", "lstm", "simple_rnn", "_fused_cell", "_extended_lstm_cell"]
)
def test_examples_run(module):
    import importlib

    outcome = doctest.testmod(importlib.import_module(f"tf_blockrnn.layers.{module}"))
    assert outcome.attempted > 0 and outcome.failed == 0
