"""Recurrent dropout, zoneout, projections and inputs that are projected already; the simple RNN.

The oracle is one TensorFlow step after the other in float64, differentiated by TensorFlow.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, compare, covering, run_modes, sequence_functions, tolerances
from helpers.sequence_variants import (
    DIMS,
    VARIANTS,
    call,
    differentiated_sum,
    inputs_of,
    zoneout_of,
)

all_variants = pytest.mark.parametrize("key", VARIANTS)


def _stored(value, dtype):
    """Rounded to the type of a call, as a simple RNN keeps its state; the slope is 1."""
    return value + tf.stop_gradient(tf.cast(tf.cast(value, dtype), tf.float64) - value)


def _parts(variant, values):
    """What belongs to each gate: "x" are the sums of x and bias, a list over the steps.

    All is cut once for all steps, as a cut and its gradient take longer than the step itself.
    """
    names = [name for name in ("w_x", "w_h", "b", "b_x", "b_h") if name in values]
    parts = {k: tf.split(values[k], len(variant.gates), axis=-1) for k in names}
    if variant.normalized:
        return _normalized_parts(variant, values, parts)
    if "w_x" in values:
        products = [values["x"] @ w for w in parts["w_x"]]
    else:
        products = tf.split(values["x"], len(variant.gates), axis=-1)
    biases = parts["b_x" if variant.name == "gru" else "b"]
    parts["x"] = [tf.unstack(p + bias) for p, bias in zip(products, biases, strict=True)]
    if "dropout" in values:
        parts["dropout"] = tf.unstack(values["dropout"])
    return {k: dict(zip(variant.gates, v, strict=True)) for k, v in parts.items()}


def _norm(values, of, sums, epsilon):
    mean, variance = tf.nn.moments(sums, axes=[-1], keepdims=True)
    s_hat = (sums - mean) / tf.sqrt(variance + epsilon)
    return values[f"gamma_{of}"] * s_hat + values[f"beta_{of}"]


def _normalized_parts(variant, values, parts):
    """The same with the norm over all gates; biases are added behind it."""
    sums = values["x"] @ values["w_x"] if "w_x" in values else values["x"]
    z = _norm(values, "x", sums, variant.options["epsilon"])
    z = z + values["b" if variant.cell_state else "b_x"]
    parts["x"] = [tf.unstack(p) for p in tf.split(z, len(variant.gates), axis=-1)]
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

    if variant.normalized:
        epsilon = variant.options["epsilon"]
        sums = tf.concat([from_h(gate) for gate in variant.gates], axis=-1)
        of_h = _norm(values, "h", sums, epsilon) + values.get("b_h", 0.0)
        of_h = tf.split(of_h, len(variant.gates), axis=-1)
        if not variant.cell_state:
            of_h = dict(zip(variant.gates, of_h, strict=True))
            r, u = (tf.sigmoid(parts["x"][gate][t] + of_h[gate]) for gate in "ru")
            return u * h + (1 - u) * tf.tanh(parts["x"]["c"][t] + r * of_h["c"]), cs
        z = {gate: parts["x"][gate][t] + z for gate, z in zip(variant.gates, of_h, strict=True)}
        c = tf.sigmoid(z["f"]) * cs + tf.sigmoid(z["i"]) * tf.tanh(z["c"])
        read = _norm(values, "c", c, epsilon)
        h = tf.sigmoid(z["o"]) * tf.tanh(read)
        return h, c if variant.options.get("norm_output_only") else read
    if variant.name == "simple_rnn":
        act = tf.nn.relu if variant.options.get("activation") == "relu" else tf.tanh
        return _stored(act(total("h")), dtype), cs
    if variant.name == "lstm":
        i = tf.sigmoid(total("i") + seen("wci", cs))
        f = tf.sigmoid(total("f") + (seen("wcf", cs) + variant.options.get("forget_bias", 0.0)))
        cs = f * cs + i * tf.tanh(total("c"))
        bound = variant.options.get("cell_clip", np.inf)
        cs += tf.stop_gradient(tf.clip_by_value(cs, -bound, bound) - cs)
        m = tf.sigmoid(total("o") + seen("wco", cs)) * tf.tanh(cs)
        return (m @ tf.transpose(values["w_p"]) if variant.projects else m), cs
    r, u = (tf.sigmoid(total(gate) + parts["b_h"][gate]) for gate in "ru")
    b_h = parts["b_h"]["c"]
    if variant.options.get("reset_after", True):
        c = tf.tanh(parts["x"]["c"][t] + r * (from_h("c") + b_h))
    else:
        c = tf.tanh(parts["x"]["c"][t] + from_h("c", r) + b_h)
    return u * h + (1 - u) * c, cs


def _zoned_out(zoneout, t, before, new):
    """A state after step t, given the one before it and the new one."""
    if zoneout is None:
        return new
    if tf.is_tensor(zoneout):
        return tf.where(zoneout[t], before, new)
    return zoneout * before + (1 - zoneout) * new


def _oracle(variant, values, keep, within, backwards):
    """Outputs, last h and (for an LSTM) last cs, from float64 tensors."""
    h, cs = values["h"], values.get("cs", values["h"])
    dtype, parts = values["dtype"], _parts(variant, values)
    keep, within = (tf.unstack(tf.constant(k[..., None])) for k in (keep, within))
    outputs = {}
    zoneout = zoneout_of(variant, values) if variant.zoneout else {}
    for t in list(range(len(keep)))[:: -1 if backwards else 1]:
        new_h, new_cs = _step(variant, dtype, values, parts, t, h, cs)
        new_h = _zoned_out(zoneout.get("zoneout_h"), t, h, new_h)
        new_cs = _zoned_out(zoneout.get("zoneout_c"), t, cs, new_cs)
        # Not a multiplication by the mask, which would propagate a NaN.
        h, cs = tf.where(keep[t], new_h, h), tf.where(keep[t], new_cs, cs)
        outputs[t] = tf.where(within[t], h, tf.zeros_like(h))
    stacked = tf.stack([outputs[t] for t in range(len(keep))])
    return [stacked, h, cs] if variant.cell_state else [stacked, h]


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
        options["lengths"] = lengths

    def ours(tensors):
        outputs = call(
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


@pytest.mark.parametrize(
    ("key", "dropout", "projected", "kind", "layout"),
    covering.pairwise(
        VARIANTS,
        [False, True],
        [False, True],
        ["none", "holes", "lengths", "lengths and holes", "nothing"],
        itertools.product([True, False], repeat=2),
    ),
)
def test_masks_lengths_layouts_and_directions(tfb, key, dropout, projected, kind, layout):
    time_major, backwards = layout
    _check(
        tfb,
        VARIANTS[key],
        DIMS,
        "double",
        sequence_functions.patterns(DIMS)[kind],
        dropout=dropout,
        projected=projected,
        time_major=time_major,
        backwards=backwards,
    )


# (T, B, I, H), the pattern, and what the call is: one row, a few, rows for more than one tile, and
# more than a panel of units.
SIZES = (
    ((1, 1, 3, 7), "none", {"projected": False, "time_major": False, "backwards": False}),
    (
        (3, 2, 5, 33),
        "lengths and holes",
        {"projected": False, "time_major": True, "backwards": True},
    ),
    ((4, 20, 17, 40), "none", {"projected": True, "time_major": False, "backwards": False}),
    (
        (2, 130, 3, 66),
        "lengths and holes",
        {"projected": True, "time_major": True, "backwards": False},
    ),
)


@all_variants
@pytest.mark.parametrize("dtype", block_cells.DTYPES)
def test_every_type_and_size(tfb, key, dtype):
    for dims, kind, how in SIZES:
        pattern = sequence_functions.patterns(dims)[kind]
        _check(tfb, VARIANTS[key], dims, dtype, pattern, dropout=True, **how)


@all_variants
def test_factors_of_one_change_nothing_but_the_order_of_sums(tfb, key):
    variant, dims = VARIANTS[key], (5, 9, 4, 21)
    inputs = inputs_of(variant, dims, np.float32, dropout=True, projected=False)
    plain = {k: tf.constant(v) for k, v in inputs.items() if k != "dropout"}
    ones = {**plain, "dropout": tf.ones_like(inputs["dropout"])}
    results = [
        _differentiated(lambda t: call(tfb, variant, t, time_major=True), tensors, None)
        for tensors in (plain, ones)
    ]
    bound = tolerances.parity_bound("float", dims[0] * (dims[2] + dims[3]), backward=True)
    for mine, other in zip(results[0][0], results[1][0], strict=True):
        compare.assert_close(other.numpy(), mine.numpy(), bound)
    for name, mine in results[0][1].items():
        compare.assert_close(results[1][1][name].numpy(), mine.numpy(), bound, name)


@all_variants
def test_dropped_units_do_not_reach_the_next_step(tfb, key):
    """With every factor 0 each step is independent, as after a state of zeros."""
    variant = VARIANTS[key]
    inputs = inputs_of(variant, DIMS, np.float64, dropout=True, projected=False)
    inputs["dropout"] = np.zeros_like(inputs["dropout"])
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    _, gradients, _ = _differentiated(
        lambda t: call(tfb, variant, t, time_major=True), tensors, None
    )
    assert not np.any(gradients["w_h"].numpy())
    if variant.name == "simple_rnn":
        assert not np.any(gradients["h"].numpy())
    else:
        kept = variant.name.endswith("gru") or bool(variant.zoneout)
        assert np.any(gradients["h"].numpy()) == kept


@all_variants
@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_graph_of_unknown_shapes(tfb, key, mode):
    variant = VARIANTS[key]
    compute = None
    sizes = (DIMS, (1, 1, 4, 4), (3, 0, 2, 4), (0, 2, 2, 4))
    for dims in run_modes.fewer(mode, sizes, slice(None, None, 2)):
        inputs = inputs_of(variant, dims, np.float32, dropout=True, projected=False)
        tensors = {k: tf.constant(v) for k, v in inputs.items()}
        if compute is None:
            unknown = {k: tf.TensorSpec(None, tf.float32) for k in tensors}
            compute = run_modes.in_mode(
                mode, lambda t: differentiated_sum(tfb, variant, t), input_signature=[unknown]
            )
        got, want = compute(tensors), differentiated_sum(tfb, variant, tensors)
        for mine, eager in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
            assert compare.bits(mine) == compare.bits(eager), dims
