"""Calls of the sequence functions whose second derivatives are tested."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from helpers import compare, sequence_functions, tolerances

T, B, I, H, P = 3, 3, 2, 3, 2  # noqa: E741  the contracts' names
BOUND = tolerances.second_bound("double", T * (I + H))
MASK = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0]], bool)  # [T, B]
RESETS = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0]], bool)  # [T, B]
LENGTHS = np.array([2, 3, 1], np.int32)
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1, "layer_norm_lstm": 4, "layer_norm_gru": 3}

# The function, its options, and what is given to it beside: "mask", "lengths" ("lengths64" in
# int64), "dropout", "peepholes", "projection", "products" (the input is x · w_x), "zoneout" by
# draws or by its "mean", "resets".
CASES = {
    "lstm": ("lstm", {}, ""),
    "lstm mask dropout": ("lstm", {"forget_bias": 0.6}, "mask dropout"),
    "lstm lengths peepholes": ("lstm", {"go_backwards": True}, "lengths peepholes"),
    "lstm all": (
        "lstm",
        {"time_major": True, "go_backwards": True},
        "mask lengths64 dropout peepholes projection",
    ),
    "lstm products": ("lstm", {"time_major": True}, "lengths products projection"),
    "lstm resets all": (
        "lstm",
        {"go_backwards": True, "time_major": True},
        "resets mask lengths dropout projection zoneout",
    ),
    "layer norm lstm": ("layer_norm_lstm", {}, ""),
    "layer norm lstm all": (
        "layer_norm_lstm",
        {"epsilon": 0.1, "time_major": True, "go_backwards": True},
        "mask lengths dropout",
    ),
    "layer norm lstm products": (
        "layer_norm_lstm",
        {"norm_output_only": True},
        "mask products",
    ),
    "layer norm gru": ("layer_norm_gru", {}, ""),
    "layer norm gru all": (
        "layer_norm_gru",
        {"epsilon": 0.1, "time_major": True, "go_backwards": True, "gate_order": "urc"},
        "mask lengths dropout",
    ),
    "layer norm gru resets": ("layer_norm_gru", {}, "resets lengths"),
    "layer norm gru products": ("layer_norm_gru", {}, "lengths products"),
    "lstm zoneout": ("lstm", {"go_backwards": True}, "mask lengths peepholes dropout zoneout"),
    "lstm mean": ("lstm", {"time_major": True}, "lengths projection mean"),
    "gru after": ("gru", {}, "lengths dropout"),
    "gru after zoneout": ("gru", {"gate_order": "urc"}, "mask lengths zoneout"),
    "gru before resets": (
        "gru",
        {"reset_after": False, "go_backwards": True},
        "resets mask dropout",
    ),
    "gru after mean": ("gru", {"time_major": True}, "mean"),
    "gru before zoneout": ("gru", {"reset_after": False, "time_major": True}, "zoneout"),
    "gru before mean": ("gru", {"reset_after": False}, "mask lengths dropout mean"),
    "gru after urc": (
        "gru",
        {"gate_order": "urc", "go_backwards": True},
        "mask lengths dropout",
    ),
    "gru after products": ("gru", {"gate_order": "urc", "time_major": True}, "products mask"),
    "gru before": ("gru", {"reset_after": False}, "lengths dropout"),
    "gru before all": (
        "gru",
        {"reset_after": False, "go_backwards": True, "gate_order": "urc"},
        "mask lengths dropout",
    ),
    "gru before products": ("gru", {"reset_after": False, "time_major": True}, "products mask"),
    "rnn tanh": ("simple_rnn", {}, "lengths dropout"),
    "rnn tanh all": ("simple_rnn", {"go_backwards": True, "time_major": True}, "mask lengths"),
    "rnn resets": ("simple_rnn", {}, "resets lengths"),
    "rnn relu": ("simple_rnn", {"activation": "relu"}, "products mask dropout"),
}


def random_array(shape, seed):
    return np.random.default_rng(seed).normal(size=shape) * 0.7


class Differentiable:
    """A call that is differentiated twice.

    `inputs` by name, `cotangents`, one for each output and named "cotangent …", as arrays; `call`
    gives the outputs, `padding` pairs of an array and the places in it that are past a length.
    """

    bound = BOUND
    inputs: dict[str, np.ndarray]
    cotangents: dict[str, np.ndarray]

    def call(self, tfb, tensors):
        raise NotImplementedError

    def first(self, tfb, tensors):
        """A number of all first gradients, each weighted by itself."""
        inputs = {k: v for k, v in tensors.items() if not k.startswith("cotangent")}
        cotangents = [v for k, v in tensors.items() if k.startswith("cotangent")]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = self.call(tfb, inputs)
        found = tape.gradient(outputs, inputs, output_gradients=cotangents)
        return tf.add_n([weighted(g) for g in found.values() if g is not None])

    def second(self, tfb, tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            total = self.first(tfb, tensors)
        return tape.gradient(total, tensors, unconnected_gradients="zero")

    def tensors(self):
        return {k: tf.constant(v) for k, v in {**self.inputs, **self.cotangents}.items()}


class Case(Differentiable):
    """A call of a function: what has gradients by name, what has none, how it is called."""

    def __init__(self, case, steps=T, batch=B, dtype=np.float64, **more):
        self.name, options, given = CASES[case]
        given = given.replace("lengths64", "lengths int64").split()
        gates = GATES[self.name]
        width = gates * H
        state = P if "projection" in given else H
        self.options = {**options, **more}
        major = self.options.get("time_major", False)
        two = (steps, batch) if major else (batch, steps)
        shapes = {"x": (*two, width if "products" in given else I), "h": (batch, state)}
        if self.name.endswith("lstm"):
            shapes["cs"] = (batch, H)
        if "products" not in given:
            shapes["w_x"] = (I, width)
        shapes["w_h"] = (state, width)
        shapes |= {b: (width,) for b in (("b_x", "b_h") if self.name.endswith("gru") else ("b",))}
        if self.name.startswith("layer_norm"):
            shapes |= {f"{k}_{of}": (width,) for of in "xh" for k in ("gamma", "beta")}
        if self.name == "layer_norm_lstm":
            shapes |= {"gamma_c": (H,), "beta_c": (H,)}
        if "peepholes" in given:
            shapes["peepholes"] = (3, H)
        if "projection" in given:
            shapes["w_p"] = (P, H)
        self.outputs = [(*two, state), (batch, state), (batch, H)][
            : len(shapes.keys() & {"cs"}) + 2
        ]
        self.inputs = {
            name: random_array(shape, [seed]).astype(dtype)
            for seed, (name, shape) in enumerate(shapes.items())
        }
        # What the outputs' gradients are is an input of the first gradient, too.
        self.cotangents = {
            f"cotangent {k}": random_array(shape, [50 + k]).astype(dtype)
            for k, shape in enumerate(self.outputs)
        }
        if "dropout" in given:
            factors = np.random.default_rng(99).random((gates, batch, state)) > 0.3
            # A number in every type.
            self.options["recurrent_dropout_factors"] = tf.constant((factors * 1.5).astype(dtype))
        for name, size in (("zoneout_h", state), ("zoneout_c", H)):
            if "mean" in given:
                self.options[name] = 0.2 if name == "zoneout_c" else 0.4
            elif "zoneout" in given:
                draws = np.random.default_rng([name == "zoneout_c"]).random((*two, size)) < 0.4
                self.options[name] = tf.constant(draws)
            if self.name != "lstm":
                break  # there is no cell state
        if "mask" in given:
            mask = MASK[:steps, :batch]
            self.options["mask"] = tf.constant(mask if major else mask.T)
        if "resets" in given:
            resets = RESETS[:steps, :batch]
            self.options["resets"] = tf.constant(resets if major else resets.T)
        if "lengths" in given:
            lengths = np.minimum(LENGTHS[:batch], steps)
            self.options["lengths"] = tf.constant(
                lengths, tf.int64 if "int64" in given else tf.int32
            )

    def padding(self):
        past = np.arange(self.outputs[0][1]) >= LENGTHS[:, np.newaxis]
        return [(self.inputs["x"], past), (self.cotangents["cotangent 0"], past)]

    def call(self, tfb, tensors):
        """The outputs and the last states."""
        given = {k: v for k, v in tensors.items() if not k.startswith("cotangent")}
        x, w_x, w_h = given.pop("x"), given.pop("w_x", None), given.pop("w_h")
        h, cs = given.pop("h"), given.pop("cs", None)
        if "peepholes" in given:
            given["peepholes"] = tuple(tf.unstack(given["peepholes"], 3))
        given |= sequence_functions.norms_of(given)
        given["initial_state"] = h if cs is None else (h, cs)
        outputs, state = getattr(tfb, self.name)(x, w_x, w_h, **given, **self.options)
        return [outputs, *(state if cs is not None else [state])]


def weighted(gradient):
    """A sum in which each element counts by itself, and not linearly; of half in float32."""
    if gradient.dtype.size < 4:  # in which a count of 60 hides all but 4 bits of a gradient
        gradient = tf.cast(gradient, tf.float32)
    count = tf.cast(tf.reshape(tf.range(tf.size(gradient)), tf.shape(gradient)), gradient.dtype)
    return tf.reduce_sum(tf.sin(gradient + count))


def along(gradient, seed) -> np.ndarray:
    """A random direction in which the terms of the derivative add up and do not cancel."""
    gradient = np.asarray(gradient)
    random = np.random.default_rng(seed).normal(size=gradient.shape)
    return np.abs(random) * np.where(gradient < 0, -1.0, 1.0)


def check_finite_differences(tfb, call: Differentiable) -> None:
    """Of the first gradient, along one direction for each input and each gradient of an output."""
    tensors, step = call.tensors(), tolerances.FINITE_DIFFERENCE_STEP
    got = call.second(tfb, tensors)
    for seed, name in enumerate(tensors):
        assert got[name].shape == tensors[name].shape, name
        direction = along(got[name], seed)
        ends = [
            float(call.first(tfb, {**tensors, name: tensors[name] + sign * step * direction}))
            for sign in (1, -1)
        ]
        want = (ends[0] - ends[1]) / (2 * step)
        found = np.sum(got[name].numpy() * direction)
        compare.assert_close(found, want, tolerances.FINITE_DIFFERENCES, name)
