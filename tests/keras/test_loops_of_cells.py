"""`keras.layers.RNN` over cells on the ops: what Keras' own loop over the same cells gives.

Our cells, and Keras' own while the switch is on. That numbers are Keras' in all types, for single
cells, is in `layers/test_layers_numbers.py` and `layers/test_layers_dropout.py`.
"""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import covering
from helpers.compare import bits
from helpers.layer_pairs import (
    BATCH,
    INPUT,
    KINDS,
    LOOPS,
    MASK,
    TIME,
    UNITS,
    Stepped,
    assert_same,
    initial_states,
    make_ours,
    make_peer,
    needs_a_rate_of_one,
    op_types,
    randomise,
    sequence,
    share_weights,
    values,
)

from tf_blockrnn.layers import _cell_loop, _fused_call, _fusing

OURS_ALONE = ("LayerNormLSTM", "LayerNormGRU")
# The kinds of the cells that a loop steps one after another.
LOOPS_OF = {
    **{kind: (kind,) for kind in (*KINDS, *OURS_ALONE)},
    "stack": ("LSTM", "GRU-before", "RNN-relu"),
    "stack of two": ("GRU", "LSTM"),
    "stack with norms": ("LayerNormLSTM", "GRU", "LayerNormGRU"),
}
SWITCHED = [name for name, kinds in LOOPS_OF.items() if not set(kinds) & set(OURS_ALONE)]

# Of each: arguments of keras.layers.RNN, and of the call.
ALL = {"return_sequences": True, "return_state": True}
OPTIONS = {
    "last output": ({}, {}),
    "all": (ALL, {}),
    "masked": (ALL, {"mask": MASK}),
    "masked, last output": ({"return_state": True}, {"mask": MASK, "states": True}),
    "backwards": ({**ALL, "go_backwards": True}, {"mask": MASK, "states": True}),
    "zeros": ({**ALL, "zero_output_for_mask": True}, {"mask": MASK, "states": True}),
    "zeros, last output": ({"zero_output_for_mask": True, "go_backwards": True}, {"mask": MASK}),
    "unrolled": (
        {**ALL, "unroll": True, "go_backwards": True, "zero_output_for_mask": True},
        {"mask": MASK, "states": True},
    ),
    "states": (ALL, {"states": True}),
    "mask of three dims": ({"return_sequences": True}, {"mask": MASK[..., None]}),
}


@pytest.fixture(autouse=True)
def _off_again(tfb):
    yield
    tfb.disable_keras()


def _cell(kind: str, ours: bool, **arguments):
    from tf_blockrnn import layers

    if kind in OURS_ALONE:
        # An epsilon that is not small: a norm of a few numbers divides by what may be.
        return getattr(layers, f"{kind}Cell")(UNITS, norm_epsilon=0.5, **arguments)
    return (make_ours if ours else make_peer)(kind, cell=True, **arguments)


def loop(name: str, ours: bool = True, cell: dict | None = None, **arguments) -> keras.layers.RNN:
    """A loop over the cells of this name, whose arguments are `cell`."""
    cells = [
        _cell(kind, ours, **{"seed": 5 + number, **(cell or {})})
        for number, kind in enumerate(LOOPS_OF[name])
    ]
    return keras.layers.RNN(cells if len(cells) > 1 else cells[0], **arguments)


def both(name: str, **arguments) -> list[keras.layers.RNN]:
    """One of our cells and one of Keras' own, with the same weights; norms are ours in both."""
    found = [loop(name, ours, **arguments) for ours in (True, False)]
    share_weights(found)
    return found


def states_of(name: str) -> list:
    """In the structure that a stack has them in, or a single cell."""
    kinds = ["LSTM" if kind == "LayerNormLSTM" else kind for kind in LOOPS_OF[name]]
    states = [initial_states(kind) for kind in kinds]
    return states if len(states) > 1 else states[0]


def in_graph(layer, run=values, x=None, **call) -> tuple[list, bool]:
    """What a tf.function of the layer gives, and whether it has one op for each cell and no loop.

    Of the ops that its results need: Keras calls the cells of a stack once for nothing.
    """
    x = tf.constant(sequence() if x is None else x)
    function = tf.function(lambda: run(layer, x, **call)).get_concrete_function()
    needed = [output.op.name for output in function.graph.outputs]
    live = tf.compat.v1.graph_util.extract_sub_graph(function.graph.as_graph_def(), needed)
    nodes = [*live.node, *(n for each in live.library.function for n in each.node_def)]
    ops = [node.op for node in nodes]
    steps = [op for op in ops if op.startswith("BlockRNN>") and not op.endswith("Grad")]
    if not LOOPS & set(ops):
        assert len(steps) in (0, len(_cell_loop.cells_of(layer)))
    return function(), bool(steps) and not LOOPS & set(ops)


def is_fused(layer, **call) -> bool:
    return in_graph(layer, lambda layer, x: layer(x, **call))[1]


def in_keras_loop(run, *arguments, **call):
    with _fused_call.without_ops():
        return run(*arguments, **call)


# ---- numbers


@pytest.mark.parametrize("name", [name for name in LOOPS_OF if name != "stack of two"])
@pytest.mark.parametrize("option", OPTIONS)
def test_equals_the_loop_of_keras(tfb, name, option):
    """Ours, in a graph, and Keras' own under the switch have outputs, states and gradients."""
    arguments, call = OPTIONS[option]
    call = {**call, "states": states_of(name) if call.get("states") else None}
    ours, stock = both(name, **arguments)
    want = in_keras_loop(values, stock, sequence(), **call)
    got, fused = in_graph(ours, **call)
    assert_same(got, want, steps=len(LOOPS_OF[name]))
    assert fused
    if name in SWITCHED:
        with tfb.enable_keras():
            switched, fused = in_graph(stock, **call)
        assert [bits(value) for value in switched] == [bits(value) for value in got] and fused


@pytest.mark.parametrize(
    ("name", "rates", "more"),
    covering.pairwise(LOOPS_OF, [(0.4, 0.0), (0.3, 0.4), (1.0, 0.5)], [{}, {"implementation": 1}]),
)
def test_dropout_masks_are_those_of_keras(tfb, name, rates, more):
    """The same numbers in calls that train and do not, and equal states of the seeds after them."""
    needs_a_rate_of_one(*rates)
    cell = {"dropout": rates[0], "recurrent_dropout": rates[1]}
    if not {"RNN-tanh", "RNN-relu"} & set(LOOPS_OF[name]):
        cell |= more
    ours, stock = both(name, return_sequences=True, cell=cell)

    def seeds(layer):
        return [np.asarray(each.seed_generator.state) for each in _cell_loop.cells_of(layer)]

    def run(layer, form=lambda function: function):
        x = sequence()
        first = form(values)(layer, x, training=True)
        return [*first, layer(x), layer(x, training=True, mask=MASK)]

    want = in_keras_loop(run, stock)
    steps = len(LOOPS_OF[name])
    assert_same(run(ours, tf.function), want, steps=steps)
    assert np.array_equal(seeds(ours), seeds(stock))
    if name in SWITCHED:
        again = loop(name, ours=False, return_sequences=True, cell=cell)
        share_weights([again])
        again.set_weights(ours.get_weights())
        with tfb.enable_keras():
            assert_same(run(again), want, steps=steps)
        assert np.array_equal(seeds(again), seeds(stock))
    for each in _cell_loop.cells_of(ours):
        assert each._dropout_mask is None and each._recurrent_dropout_mask is None


@pytest.mark.parametrize("name", ["LSTM", "GRU", "stack of two"])
def test_zoneout_is_that_of_the_cells_steps(name):
    """At inference; that each step draws anew in training is in layers/test_layers_zoneout.py."""
    ours, stock = (loop(name, return_sequences=True, cell={"zoneout_h": 0.3}) for _ in range(2))
    share_weights([ours, stock])
    got, fused = in_graph(ours, mask=MASK)
    assert_same(got, in_keras_loop(values, stock, sequence(), mask=MASK), steps=2)
    assert fused and np.any(got[0] != np.asarray(both(name, return_sequences=True)[0](sequence())))


@pytest.mark.parametrize("name", ["GRU", "LayerNormLSTM", "stack"])
@pytest.mark.parametrize("policy", ["mixed_float16", "bfloat16", "float64"])
def test_types(name, policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        cell = {"recurrent_initializer": "zeros"}
        ours, stock = both(name, **ALL, cell=cell)
    finally:
        keras.config.set_dtype_policy(before)
    got, fused = in_graph(ours, mask=MASK)
    want = in_keras_loop(values, stock, sequence(), mask=MASK)
    assert_same(got, want, ours.compute_dtype, steps=len(LOOPS_OF[name]))
    assert fused and got[0].dtype == ours.compute_dtype


@pytest.mark.parametrize("name", ["LSTM", "stack with norms"])
def test_sizes_that_the_graph_does_not_know(name):
    ours, stock = both(name, **ALL)
    spec = [tf.TensorSpec([None, None, INPUT]), tf.TensorSpec([None, None], tf.bool)]
    run = tf.function(lambda x, mask: ours(x, mask=mask), input_signature=spec)
    assert not LOOPS & set(op_types(run))
    for batch, time in ((BATCH, TIME), (1, 7)):
        x, mask = sequence(batch, time), np.resize(MASK, [batch, time])
        want = in_keras_loop(stock, x, mask=mask)
        found = (keras.tree.flatten(each) for each in (run(x, mask), want))
        assert_same(*found, steps=len(LOOPS_OF[name]))


@pytest.mark.parametrize("name", ["GRU-before", "stack"])
def test_stateful(name):
    """In one graph of two calls: each begins where the one before ended, until they are reset."""
    ours, stock = both(name, stateful=True, return_sequences=True)

    def run(layer, x):
        return [layer(x), layer(x, mask=MASK), *keras.tree.flatten(layer.states)]

    for _ in range(2):
        want = in_keras_loop(lambda: [*map(np.asarray, run(stock, sequence()))])
        got = tf.function(run)(ours, tf.constant(sequence()))
        for mine, its in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, its, atol=1e-5)
        for layer in (ours, stock):
            for state in keras.tree.flatten(layer.states):
                state.assign(keras.ops.zeros_like(state))


@pytest.mark.parametrize("name", ["LSTM", "stack of two"])
@pytest.mark.parametrize("merge_mode", ["concat", None])
def test_both_directions(name, merge_mode):
    layers = [
        keras.layers.Bidirectional(loop(name, ours, **ALL), merge_mode=merge_mode)
        for ours in (True, False)
    ]
    share_weights(layers)
    mine, its = layers
    run = tf.function(lambda x: mine(x, mask=MASK))
    got, want = run(sequence()), in_keras_loop(its, sequence(), mask=MASK)
    assert_same(keras.tree.flatten(got), keras.tree.flatten(want), steps=len(LOOPS_OF[name]))
    assert not LOOPS & set(op_types(run, tf.constant(sequence())))


@pytest.mark.parametrize(
    ("name", "jit"), [("LSTM", False), ("LayerNormGRU", False), ("stack", False), ("stack", True)]
)
def test_models_train_save_and_load(tfb, tmp_path, name, jit):
    """Ours; Keras' own, after fuse_model and under the switch; and what is loaded from a file."""

    def trained(ours=False, change=lambda model: model):
        model = keras.Sequential([keras.Input((TIME, INPUT)), loop(name, ours)])
        randomise(model)
        model = change(model)
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
        model.fit(sequence(), np.ones([BATCH, UNITS]), BATCH, epochs=2, verbose=0)
        return model

    stock = in_keras_loop(trained)
    models = [trained(ours=True), trained(change=tfb.fuse_model)]
    with tfb.enable_keras():
        models.append(trained())
    models[0].save(tmp_path / "model.keras")
    models.append(keras.saving.load_model(tmp_path / "model.keras"))
    want = in_keras_loop(stock.predict, sequence(), verbose=0)
    for model in models:
        assert_same(model.get_weights(), stock.get_weights(), steps=4 * len(LOOPS_OF[name]))
        got = model.predict(sequence(), verbose=0)
        assert_same([got], [want], steps=4 * len(LOOPS_OF[name]))
    assert is_fused(models[0].layers[0]) and is_fused(models[-1].layers[0])
    assert is_fused(models[1].layers[0])
    assert is_fused(models[2].layers[0]) == (name not in SWITCHED)  # the switch is off again


# ---- loops that stay Keras'


class Custom(keras.layers.LSTMCell):
    def call(self, inputs, states, training=False):
        return super().call(inputs, states, training=training)


class OwnCall(keras.layers.RNN):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        return super().call(2.0 * sequences, initial_state, mask, training)


def _patched(layer, what):
    vars(layer)[what] = getattr(layer, what)
    return layer


def _mixed():
    return keras.layers.RNN([make_ours("LSTM", cell=True, name="ours"), Custom(UNITS, name="own")])


REFUSED = {
    "custom cell": (_mixed, "its cell 1: there is no op for the cell Custom"),
    "own inner_loop": (lambda: Stepped(_cell("GRU", True)), "its inner_loop is not Keras' own"),
    "inner_loop of the instance": (
        lambda: _patched(keras.layers.RNN(_cell("GRU", True)), "inner_loop"),
        "its inner_loop is not Keras' own",
    ),
    "call of the cell": (
        lambda: keras.layers.RNN(_patched(_cell("GRU", True), "call")),
        "its method call was replaced",
    ),
    "regularizer": (
        lambda: keras.layers.RNN(_cell("GRU", True, activity_regularizer="l2")),
        "Keras adds its activity_regularizer at each step",
    ),
    "types": (
        lambda: keras.layers.RNN([_cell("GRU", True), _cell("GRU", True, dtype="float64")]),
        "its cells compute in float32 and float64",
    ),
    "activation": (
        lambda: keras.layers.RNN(_cell("LayerNormGRU", True, activation="relu")),
        "activation is relu, the op has tanh",
    ),
}


@pytest.mark.filterwarnings("ignore:.*falls back")
@pytest.mark.parametrize("case", REFUSED)
def test_other_loops_are_those_of_keras(tfb, case):
    make, reason = REFUSED[case]
    layer = make()
    found = _cell_loop.why_not_fused(layer)
    assert reason in found
    (row, *cells) = tfb.report(layer).rows
    assert row.fused is False and row.reason == found
    assert all(cell.fused is not False for cell in cells) and bool(cells) == (case != "activation")
    if case == "types":
        return  # Keras' own loop refuses these, too
    layer.build((BATCH, TIME, INPUT))
    ran = [layer(sequence()), in_keras_loop(layer, sequence())]
    assert_same(*([each] for each in ran))
    assert not is_fused(layer)


def test_a_subclass_with_a_call_of_its_own_has_the_op(tfb):
    layer = OwnCall(_cell("GRU", True))
    plain = keras.layers.RNN(layer.cell)
    plain.build((BATCH, TIME, INPUT))
    assert_same([layer(sequence())], [plain(2.0 * sequence())])
    assert is_fused(layer)
    (row,) = tfb.report(layer).rows
    assert row.fused is None and "OwnCall has its own call" in row.reason


def test_the_cell_of_keras_whose_class_was_patched(tfb, monkeypatch):
    own = keras.layers.LSTMCell.call
    monkeypatch.setattr(keras.layers.LSTMCell, "call", lambda *a, **k: own(*a, **k))
    with tfb.enable_keras():
        assert "was replaced" in _cell_loop.why_not_fused(loop("LSTM", ours=False))


def test_masks_of_single_units_are_keras_own():
    ours, stock = both("GRU")
    mask = np.random.default_rng(1).random([BATCH, TIME, UNITS]) > 0.5
    np.testing.assert_allclose(ours(sequence(), mask=mask), stock(sequence(), mask=mask), atol=1e-5)


@pytest.mark.parametrize("name", SWITCHED)
def test_keras_own_loop_is_back_after_the_switch(tfb, name):
    _, stock = both(name)
    with tfb.enable_keras():
        assert is_fused(stock)
        (row,) = tfb.report(stock).rows
        assert row.fused is True
    assert not is_fused(stock) and "supports_jit" not in vars(keras.layers.RNN)
    (row,) = tfb.report(stock).rows
    assert row.fused is False and row.reason == "tf_blockrnn.enable_keras() is off"


def test_warnings(tfb, monkeypatch):
    """One for each reason, where a cell of ours, or one of Keras' under the switch, has to step."""
    monkeypatch.setattr(_fusing, "_warned", set())
    words = r"keras's RNN '\w+' falls back .*cell 1: there is no op for the cell Custom.*report"
    with pytest.warns(UserWarning, match=words):
        _mixed()(sequence())
    with tfb.enable_keras(), pytest.warns(UserWarning, match="RNN '.*falls back.*activation is"):
        keras.layers.RNN(keras.layers.GRUCell(UNITS, activation="relu"))(sequence())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _mixed()(sequence())
        # Neither of these is asked for; and the cell has said so itself.
        keras.layers.RNN(keras.layers.GRUCell(UNITS, activation="elu"))(sequence())
        keras.layers.RNN(Custom(UNITS))(sequence())
        Stepped(_cell("GRU", True))(sequence())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cell = _cell("GRU", True, activation="softsign")
        keras.layers.RNN(cell)(sequence())


def test_keras_refusals_are_keras_own():
    for states in (states_of("GRU"), [states_of("stack")]):
        with pytest.raises(Exception, match="Exception encountered|index|structure"):
            both("stack")[0](sequence(), initial_state=states)
    with pytest.raises(ValueError, match="was built for 2 input features, got 3"):
        both("GRU")[0](np.ones([BATCH, TIME, 3], "float32"))


def test_the_method_is_replaced_once_and_keras_own_is_within_reach():
    from tf_blockrnn import layers

    now = keras.layers.RNN.inner_loop
    _cell_loop.install()
    assert keras.layers.RNN.inner_loop is now and not hasattr(now.__wrapped__, "__wrapped__")
    # It is recognized as Keras' own by layers that inherit it.
    assert layers.SimpleRNN(2).fused


def test_weights_of_a_cell_of_another_type_than_its_layer_are_not_rounded():
    from tf_blockrnn import layers

    cell = layers.SimpleRNNCell(1, activation="relu", dtype="float32")
    layer = keras.layers.RNN(cell, dtype="mixed_bfloat16")
    layer.build((1, 1, 1))
    cell.set_weights([np.full([1, 1], 257.0), np.zeros([1, 1]), np.full([1], -256.0)])
    with pytest.warns(UserWarning, match="compute in bfloat16 and float32"):
        np.testing.assert_array_equal(layer(np.ones([1, 1, 1], "float32")), [[1.0]])


def test_a_call_that_somebody_replaced_is_called(monkeypatch):
    from tf_blockrnn import layers

    layer = keras.layers.RNN(layers.GRUCell(2))
    assert _cell_loop.why_not_fused(layer) is None
    monkeypatch.setattr(
        layers.GRUCell, "call", lambda self, x, states, training=False: (states[0] + 1, states)
    )
    assert _cell_loop.why_not_fused(layer) == "its method call was replaced"
    np.testing.assert_array_equal(layer(np.ones([1, 3, 2], "float32")), [[1.0, 1.0]])
