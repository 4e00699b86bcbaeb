"""Recurrent dropout, projections and inputs that are projected already; the simple RNN.

The oracle is one TensorFlow step after the other in float64, differentiated by TensorFlow.
"""

from __future__ import annotations

import dataclasses
import itertools

import block_cells
import compare
import numpy as np
import pytest
import sequence_functions
import tensorflow as tf
import tolerances

DIMS = (6, 5, 3, 4)
PROJ = 3


@dataclasses.dataclass(frozen=True)
class Variant:
    """A function, its gates in the order of the weights, and the options of its calls."""

    name: str
    gates: str
    options: dict = dataclasses.field(default_factory=dict)
    projects: bool = False
    peepholes: bool = False

    @property
    def cell_state(self) -> bool:
        return self.name == "lstm"


VARIANTS = {
    "lstm": Variant("lstm", "ifco", {"forget_bias": 0.5}),
    "lstm-peephole": Variant("lstm", "ifco", {"forget_bias": 0.5}, peepholes=True),
    "lstm-projection": Variant("lstm", "ifco", projects=True),
    "gru-after": Variant("gru", "ruc"),
    "gru-after-urc": Variant("gru", "urc", {"gate_order": "urc"}),
    "gru-before": Variant("gru", "ruc", {"reset_after": False}),
    "gru-before-urc": Variant("gru", "urc", {"reset_after": False, "gate_order": "urc"}),
    "rnn-tanh": Variant("simple_rnn", "h"),
    "rnn-relu": Variant("simple_rnn", "h", {"activation": "relu"}),
}
all_variants = pytest.mark.parametrize("key", VARIANTS)
dropping = pytest.mark.parametrize("dropout", [False, True], ids=["", "dropout"])
projecting = pytest.mark.parametrize("projected", [False, True], ids=["", "projected"])


def inputs_of(variant, dims, dtype, *, dropout, projected, seed=0):
    """All tensors of a call by name, [T, B, …]; "dropout" is one of them."""
    t, b, i, h = dims
    width = PROJ if variant.projects else h
    gates = len(variant.gates)
    shapes = {"x": (t, b, gates * h if projected else i), "h": (b, width)}
    if variant.cell_state:
        shapes["cs"] = (b, h)
    if not projected:
        shapes["w_x"] = (i, gates * h)
    shapes["w_h"] = (width, gates * h)
    biases = ("b_x", "b_h") if variant.name == "gru" else ("b",)
    shapes |= {name: (gates * h,) for name in biases}
    if variant.projects:
        shapes["w_p"] = (width, h)
    if variant.peepholes:
        shapes |= {name: (h,) for name in ("wci", "wcf", "wco")}
    rng = np.random.default_rng([seed, *dims, gates])
    values = {}
    for name, shape in shapes.items():
        scale = 1 / np.sqrt(max(shape[0], 1)) if name.startswith("w_") else 1.0
        values[name] = (scale * rng.normal(size=shape)).astype(dtype)
    if dropout:
        # A power of two rounds nothing, so that relu's kink is where the oracle has it.
        values["dropout"] = np.where(rng.random((gates, b, width)) < 0.5, 2.0, 0.0).astype(dtype)
    return values


def _stored(value, dtype):
    """Rounded to the type of a call, as a simple RNN keeps its state; the slope is 1."""
    return value + tf.stop_gradient(tf.cast(tf.cast(value, dtype), tf.float64) - value)


def _parts(variant, values):
    """What belongs to each gate: "x" are the sums of x and bias, a list over the steps.

    All is cut once for all steps, as a cut and its gradient take longer than the step itself.
    """
    names = [name for name in ("w_x", "w_h", "b", "b_x", "b_h") if name in values]
    parts = {k: tf.split(values[k], len(variant.gates), axis=-1) for k in names}
    if "w_x" in values:
        products = [values["x"] @ w for w in parts["w_x"]]
    else:
        products = tf.split(values["x"], len(variant.gates), axis=-1)
    biases = parts["b_x" if variant.name == "gru" else "b"]
    parts["x"] = [tf.unstack(p + bias) for p, bias in zip(products, biases, strict=True)]
    if "dropout" in values:
        parts["dropout"] = tf.unstack(values["dropout"])
    return {k: dict(zip(variant.gates, v, strict=True)) for k, v in parts.items()}


def _step(variant, dtype, values, parts, t, h, cs):
    """Step t in float64: (h, cs)."""

    def from_h(gate, reset=None):
        state = h * parts["dropout"][gate] if "dropout" in parts else h
        return (state if reset is None else reset * state) @ parts["w_h"][gate]

    def total(gate):
        return parts["x"][gate][t] + from_h(gate)

    def seen(name, state):
        return state * values[name] if variant.peepholes else 0.0

    if variant.name == "simple_rnn":
        act = tf.nn.relu if variant.options.get("activation") == "relu" else tf.tanh
        return _stored(act(total("h")), dtype), cs
    if variant.name == "lstm":
        i = tf.sigmoid(total("i") + seen("wci", cs))
        f = tf.sigmoid(total("f") + (seen("wcf", cs) + variant.options.get("forget_bias", 0.0)))
        cs = f * cs + i * tf.tanh(total("c"))
        m = tf.sigmoid(total("o") + seen("wco", cs)) * tf.tanh(cs)
        return (m @ tf.transpose(values["w_p"]) if variant.projects else m), cs
    r, u = (tf.sigmoid(total(gate) + parts["b_h"][gate]) for gate in "ru")
    b_h = parts["b_h"]["c"]
    if variant.options.get("reset_after", True):
        c = tf.tanh(parts["x"]["c"][t] + r * (from_h("c") + b_h))
    else:
        c = tf.tanh(parts["x"]["c"][t] + from_h("c", r) + b_h)
    return u * h + (1 - u) * c, cs


def _oracle(variant, values, keep, within, backwards):
    """Outputs, last h and (for an LSTM) last cs, from float64 tensors."""
    h, cs = values["h"], values.get("cs", values["h"])
    dtype, parts = values["dtype"], _parts(variant, values)
    keep, within = (tf.unstack(tf.constant(k[..., None])) for k in (keep, within))
    outputs = {}
    for t in list(range(len(keep)))[:: -1 if backwards else 1]:
        new_h, new_cs = _step(variant, dtype, values, parts, t, h, cs)
        # Not a product with the mask, which would let a NaN through.
        h, cs = tf.where(keep[t], new_h, h), tf.where(keep[t], new_cs, cs)
        outputs[t] = tf.where(within[t], h, tf.zeros_like(h))
    stacked = tf.stack([outputs[t] for t in range(len(keep))])
    return [stacked, h, cs] if variant.cell_state else [stacked, h]


def _call(tfb, variant, tensors, **options):
    values = dict(tensors)
    x, h, cs = values.pop("x"), values.pop("h"), values.pop("cs", None)
    dropout = values.pop("dropout", None)
    if variant.peepholes:
        options["peepholes"] = tuple(values.pop(k) for k in ("wci", "wcf", "wco"))
    values.setdefault("w_x", None)
    outputs, state = getattr(tfb, variant.name)(
        x,
        initial_state=h if cs is None else (h, cs),
        recurrent_dropout=dropout,
        **values,
        **variant.options,
        **options,
    )
    return [outputs, *state] if variant.cell_state else [outputs, state]


def _differentiated(function, tensors, cotangents):
    """Outputs and the gradients of every tensor but the factors of the dropout."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = function(tensors)
    if cotangents is None:
        rng = np.random.default_rng(3)
        cotangents = [rng.normal(size=o.shape) for o in outputs]
    given = [tf.cast(c, o.dtype) for c, o in zip(cotangents, outputs, strict=True)]
    gradients = tape.gradient(outputs, tensors, output_gradients=given)
    gradients.pop("dropout", None)
    return outputs, gradients, [g.numpy() for g in given]


def _laid_out(tensor, time_major):
    return tensor if time_major else tf.transpose(tensor, [1, 0, 2])


def _check(tfb, variant, dims, dtype, pattern, *, dropout, projected, time_major, backwards):
    kind = block_cells.numpy_type(dtype)
    inputs = inputs_of(variant, dims, kind, dropout=dropout, projected=projected)
    mask, lengths = pattern
    keep = np.ones(dims[:2], bool) if mask is None else mask
    within = np.ones(dims[:2], bool) if lengths is None else np.arange(dims[0])[:, None] < lengths
    options = {"time_major": time_major, "go_backwards": backwards}
    if mask is not None:
        options["mask"] = mask if time_major else mask.T
    if lengths is not None:
        options["sequence_lengths"] = lengths

    def ours(tensors):
        outputs = _call(
            tfb, variant, {**tensors, "x": _laid_out(tensors["x"], time_major)}, **options
        )
        return [_laid_out(outputs[0], time_major), *outputs[1:]]

    got, gradients, cotangents = _differentiated(
        ours, {k: tf.constant(v) for k, v in inputs.items()}, None
    )
    exact = {k: tf.constant(v.astype(np.float64)) for k, v in inputs.items()}
    want, want_gradients, _ = _differentiated(
        lambda tensors: _oracle(
            variant, {**tensors, "dtype": kind}, keep & within, within, backwards
        ),
        exact,
        cotangents,
    )
    t, b, i, h = dims
    what = f"{variant} {dims} {dtype} {options['time_major']} {backwards}"
    bound = tolerances.bound(dtype, max(t, 1) * (i + h))
    for mine, expected in zip(got, want, strict=True):
        assert mine.dtype == tf.as_dtype(kind)
        compare.assert_close(mine.numpy(), expected.numpy(), bound, what)
    bound = tolerances.composed_bound(dtype, max(t, 1) * max(i + h, 4 * h, b))
    assert gradients.keys() == want_gradients.keys()
    for name, expected in want_gradients.items():
        compare.assert_close(
            np.asarray(gradients[name]), np.asarray(expected), bound, f"{name} of {what}"
        )


@all_variants
@dropping
@projecting
def test_masks_lengths_layouts_and_directions(tfb, key, dropout, projected):
    patterns = sequence_functions.patterns(DIMS)
    kinds = ("none", "holes", "lengths", "lengths and holes", "nothing")
    for kind, (time_major, backwards) in zip(
        kinds, itertools.cycle(itertools.product([True, False], repeat=2)), strict=False
    ):
        _check(
            tfb,
            VARIANTS[key],
            DIMS,
            "double",
            patterns[kind],
            dropout=dropout,
            projected=projected,
            time_major=time_major,
            backwards=backwards,
        )


@all_variants
@pytest.mark.parametrize("dtype", block_cells.DTYPES)
def test_every_type_and_size(tfb, key, dtype):
    """One row, a few, rows for more than one tile, and more than a panel of units."""
    for number, dims in enumerate(((1, 1, 3, 7), (3, 2, 5, 33), (4, 20, 17, 40), (2, 130, 3, 66))):
        pattern = sequence_functions.patterns(dims)["lengths and holes" if number % 2 else "none"]
        _check(
            tfb,
            VARIANTS[key],
            dims,
            dtype,
            pattern,
            dropout=True,
            projected=number >= 2,
            time_major=bool(number % 2),
            backwards=number == 1,
        )


@all_variants
def test_factors_of_one_change_nothing_but_the_order_of_sums(tfb, key):
    variant, dims = VARIANTS[key], (5, 9, 4, 21)
    inputs = inputs_of(variant, dims, np.float32, dropout=True, projected=False)
    plain = {k: tf.constant(v) for k, v in inputs.items() if k != "dropout"}
    ones = {**plain, "dropout": tf.ones_like(inputs["dropout"])}
    results = [
        _differentiated(lambda t: _call(tfb, variant, t, time_major=True), tensors, None)
        for tensors in (plain, ones)
    ]
    bound = tolerances.parity_bound("float", dims[0] * (dims[2] + dims[3]), backward=True)
    for mine, other in zip(results[0][0], results[1][0], strict=True):
        compare.assert_close(other.numpy(), mine.numpy(), bound)
    for name, mine in results[0][1].items():
        compare.assert_close(results[1][1][name].numpy(), mine.numpy(), bound, name)


@all_variants
def test_dropped_units_do_not_reach_the_next_step(tfb, key):
    """With every factor 0 each step stands by itself, as after a state of zeros."""
    variant = VARIANTS[key]
    inputs = inputs_of(variant, DIMS, np.float64, dropout=True, projected=False)
    inputs["dropout"] = np.zeros_like(inputs["dropout"])
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    _, gradients, _ = _differentiated(
        lambda t: _call(tfb, variant, t, time_major=True), tensors, None
    )
    assert not np.any(gradients["w_h"].numpy())
    if variant.name == "simple_rnn":
        assert not np.any(gradients["h"].numpy())
    else:
        assert np.any(gradients["h"].numpy()) == (variant.name == "gru")


@all_variants
def test_graph_of_unknown_shapes(tfb, key):
    variant = VARIANTS[key]
    compute = None
    for dims in (DIMS, (1, 1, 4, 4), (3, 0, 2, 4), (0, 2, 2, 4)):
        inputs = inputs_of(variant, dims, np.float32, dropout=True, projected=False)
        tensors = {k: tf.constant(v) for k, v in inputs.items()}
        if compute is None:
            unknown = {k: tf.TensorSpec(None, tf.float32) for k in tensors}
            compute = tf.function(
                lambda t: differentiated_sum(tfb, variant, t), input_signature=[unknown]
            )
        got, want = compute(tensors), differentiated_sum(tfb, variant, tensors)
        for mine, eager in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
            assert compare.bits(mine) == compare.bits(eager), dims


def differentiated_sum(tfb, variant, tensors):
    """Outputs of a time-major call, and the gradients of their sum by name."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = _call(tfb, variant, tensors, time_major=True)
        total = tf.add_n([tf.reduce_sum(o) for o in outputs])
    gradients = tape.gradient(total, tensors)
    assert gradients.pop("dropout", None) is None
    return outputs, gradients


def _refused(tfb, key, match, *, dims=DIMS, projected=False, **changes):
    """The same error eagerly and in a graph, of unknown shapes and of known ones."""
    variant = VARIANTS[key]
    inputs = inputs_of(variant, dims, np.float32, dropout=True, projected=projected)
    inputs |= changes
    tensors = {k: v if v is None else tf.constant(v) for k, v in inputs.items()}
    given = {k: v for k, v in tensors.items() if v is not None}

    def call(arguments):
        return _call(tfb, variant, {**tensors, **arguments}, time_major=True)[0]

    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        call(given)
    unknown = {k: tf.TensorSpec(None, tf.float32) for k in given}
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        tf.function(call, input_signature=[unknown])(given)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=match):
        tf.function(call)(given)


def test_malformed_options_are_refused(tfb):
    t, b, i, h = DIMS
    zeros = np.zeros
    for key in VARIANTS:
        gates = len(VARIANTS[key].gates)
        # Twice the gates: what has to be split into them first, by TensorFlow, can be.
        for shape in ((2 * gates, b, h), (gates, b + 1, h)):
            wrong = zeros(shape, np.float32)
            _refused(tfb, key, "recurrent_dropout must have shape", dropout=wrong)
    # The function says it of x, the op, in a graph of unknown shapes, of w_x.
    _refused(tfb, "lstm", r"x must have shape \[T, B, 4H\]|w_x must .* where I = 4H", w_x=None)
    for key in ("gru-after", "gru-before"):
        match = r"x must have shape \[T, B, 3H\]|w_(ru_)?x must .* where I = 3H"
        _refused(tfb, key, match, w_x=None)
    _refused(tfb, "rnn-tanh", r"x must have shape \[T, B, H\]|w_x must .* where I = H", w_x=None)
    _refused(tfb, "lstm-projection", "w_p must .* where P = H", w_p=None)
    _refused(tfb, "lstm-projection", "w_p must have shape", w_p=zeros((PROJ, h + 1), np.float32))


def test_messages_name_the_argument_that_is_wrong(tfb):
    """With the state left out, whose size is that of the weights; and where TensorFlow splits."""
    zeros = tf.zeros

    def refused(match, function, *arguments, **options):
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            function(*arguments, **options)

    x, b = zeros([2, 3, 4]), zeros([8])
    refused(r"w_p must have shape \[P, H\]", tfb.lstm, x, zeros([4, 8]), zeros([3, 8]), b)
    refused(
        r"w_p must have shape \[P, H\]",
        tfb.lstm,
        x,
        zeros([4, 8]),
        zeros([3, 8]),
        b,
        w_p=zeros([3, 3]),
    )
    refused("lstm: w_h must have 2 dims", tfb.lstm, x, zeros([4, 8]), zeros([8]), b)
    refused("lstm: x must have 3 dims", tfb.lstm, x[0], zeros([4, 8]), zeros([2, 8]), b)
    w_h, b, before = zeros([2, 6]), zeros([6]), {"reset_after": False}
    refused("gru: w_x must .*got shape", tfb.gru, x, zeros([4, 7]), w_h, b, **before)
    refused("gru: w_h must .*got shape", tfb.gru, x, zeros([4, 6]), zeros([2, 7]), b, **before)
    refused("gru: b_x must .*got shape", tfb.gru, x, zeros([4, 6]), w_h, zeros([7]), **before)
    keras = {**before, "gate_order": "urc"}
    refused("gru: x must .*got shape", tfb.gru, x, None, w_h, b, **keras)
    factors = zeros([4, 2, 2])
    refused(
        "gru: recurrent_dropout must .*got shape",
        tfb.gru,
        x,
        zeros([4, 6]),
        w_h,
        b,
        recurrent_dropout=factors,
        **keras,
    )


def test_a_projection_to_nothing_is_refused(tfb):
    b, h = 2, 3
    with pytest.raises(tf.errors.InvalidArgumentError, match="w_p must .* P above 0"):
        tfb.lstm(
            tf.zeros([b, 4, 5]),
            tf.zeros([5, 4 * h]),
            tf.zeros([0, 4 * h]),
            tf.zeros([4 * h]),
            w_p=tf.zeros([0, h]),
        )


def test_an_unknown_activation_is_refused(tfb):
    with pytest.raises(ValueError, match="activation.*sigmoid"):
        tfb.simple_rnn(
            tf.zeros([1, 1, 1]),
            tf.zeros([1, 1]),
            tf.zeros([1, 1]),
            tf.zeros([1]),
            activation="sigmoid",
        )


def test_what_is_left_out_is_zero(tfb):
    """The initial state, of which the cell state is wider with a projection."""
    for key in ("lstm-projection", "rnn-tanh"):
        variant = VARIANTS[key]
        inputs = inputs_of(variant, DIMS, np.float32, dropout=False, projected=False)
        for name in {"h", "cs"} & set(inputs):
            inputs[name] = np.zeros_like(inputs[name])
        want = _call(tfb, variant, inputs, time_major=True)
        weights = {k: v for k, v in inputs.items() if k not in ("x", "h", "cs")}
        outputs, state = getattr(tfb, variant.name)(inputs["x"], **weights, time_major=True)
        got = [outputs, *state] if variant.cell_state else [outputs, state]
        for mine, expected in zip(got, want, strict=True):
            assert compare.bits(mine) == compare.bits(expected)


@pytest.mark.parametrize("lengths", [[0, 2], None])
def test_a_projection_of_no_units(tfb, lengths):
    """H = 0: a step gives zeros, and a row without steps keeps its state and its gradient."""
    batch, width = 2, 3
    steps = 0 if lengths is None else 2
    h_first = tf.constant([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    w_p = tf.zeros([width, 0])
    with tf.GradientTape() as tape:
        tape.watch(h_first)
        _, state = tfb.lstm(
            tf.ones([batch, steps, 5]),
            tf.zeros([5, 0]),
            tf.zeros([width, 0]),
            tf.zeros([0]),
            w_p=w_p,
            initial_state=(h_first, tf.zeros([batch, 0])),
            sequence_lengths=lengths,
        )
        weighted = tf.reduce_sum(state.h * [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    kept = np.array([[1.0], [0.0 if steps else 1.0]])
    np.testing.assert_array_equal(state.h, h_first * kept)
    np.testing.assert_array_equal(
        tape.gradient(weighted, h_first), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]] * kept
    )


def test_what_does_not_fit_is_refused_in_an_empty_batch(tfb):
    """Weights that are left out are checked whatever the batch."""
    ops = tfb.raw_ops
    none, mask = tf.zeros([0]), tf.zeros([0], tf.bool)
    lengths = tf.zeros([0], tf.int64)
    inputs = {"x": tf.zeros([3, 0, 6]), "h_prev": tf.zeros([0, 2]), "mask": mask}
    inputs |= {"sequence_lengths": lengths, "recurrent_dropout": none}
    with pytest.raises(tf.errors.InvalidArgumentError, match="w_ru_x and w_c_x"):
        ops.GRUSequence(
            **inputs,
            w_ru_x=none,
            w_ru_h=tf.zeros([2, 4]),
            w_c_x=tf.zeros([6, 2]),
            w_c_h=tf.zeros([2, 2]),
            b_ru=tf.zeros([4]),
            b_c=tf.zeros([2]),
        )
