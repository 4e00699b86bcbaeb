"""tf_blockrnn.lstm, gru, … as the tests see them: weights, calls, oracle, masks of every pattern.

Written from the functions' documentation. Sequences are [T, B, …] here, whatever a call is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from helpers import block_cells, compare, tolerances
from helpers.reference import sequence

DIMS = (6, 5, 3, 4)
PROJ = 3
_IFCO, _RUC, _URC = ("i", "f", "ci", "o"), ("r", "u", "c"), ("u", "r", "c")
_PEEPHOLES = ("wci", "wcf", "wco")
_NORMS = {"kernel_norm": "x", "recurrent_norm": "h", "state_norm": "c"}
# These numbers, and those of the options below, are none of float32: a double keeps all of them.
_RATES = {"zoneout_h": 0.3, "zoneout_c": 0.1}


@dataclasses.dataclass(frozen=True)
class Function:
    """One way to call a function: its gates in the order of the weights, and its options."""

    name: str
    gates: tuple[str, ...]
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    projects: bool = False
    peepholes: bool = False
    zoneout: str = ""  # "draws", or "mean"

    @property
    def has_cs(self) -> bool:
        return self.name.endswith("lstm")

    @property
    def cell(self) -> str:
        """What the reference calls it."""
        if self.name == "gru" and self.options.get("reset_after", True):
            return "gru_after"
        return {"simple_rnn": "rnn"}.get(self.name, self.name)

    def shapes(self, dims, projected: bool = False) -> dict[str, tuple[int, ...]]:
        """Of x, the states and the weights; dims = (T, B, I, H); projected: x is x · w_x."""
        t, b, i, h = dims
        width, gates = PROJ if self.projects else h, len(self.gates)
        shapes = {"x": (t, b, gates * h if projected else i), "h": (b, width)}
        shapes |= {"cs": (b, h)} if self.has_cs else {}
        shapes |= {} if projected else {"w_x": (i, gates * h)}
        shapes["w_h"] = (width, gates * h)
        biases = ("b_x", "b_h") if self.name.endswith("gru") else ("b",)
        shapes |= dict.fromkeys(biases, (gates * h,))
        shapes |= {"w_p": (width, h)} if self.projects else {}
        shapes |= dict.fromkeys(_PEEPHOLES, (h,)) if self.peepholes else {}
        if self.name.startswith("layer_norm"):
            norms = [f"{kind}_{of}" for of in "xh" for kind in ("gamma", "beta")]
            shapes |= dict.fromkeys(norms, (gates * h,))
            shapes |= {"gamma_c": (h,), "beta_c": (h,)} if self.has_cs else {}
        return shapes


_CLIP, _BEFORE = {"forget_bias": 0.6, "cell_clip": 1.3}, {"reset_after": False}
_URC_ORDER, _EPSILON = {"gate_order": "urc"}, {"epsilon": 0.1}
# The plain ones, and those with more.
PLAIN = {
    "lstm": Function("lstm", _IFCO, _CLIP),
    "lstm-peephole": Function("lstm", _IFCO, _CLIP, peepholes=True),
    "layer-norm-lstm": Function("layer_norm_lstm", _IFCO, _EPSILON),
    "layer-norm-lstm-output": Function(
        "layer_norm_lstm", _IFCO, {**_EPSILON, "norm_output_only": True}
    ),
    "layer-norm-gru": Function("layer_norm_gru", _RUC, _EPSILON),
    "layer-norm-gru-urc": Function("layer_norm_gru", _URC, {**_EPSILON, **_URC_ORDER}),
    "gru-after": Function("gru", _RUC),
    "gru-after-urc": Function("gru", _URC, _URC_ORDER),
    "gru-before": Function("gru", _RUC, _BEFORE),
    "gru-before-urc": Function("gru", _URC, {**_BEFORE, **_URC_ORDER}),
}
FUNCTIONS = PLAIN | {
    "lstm-projection": Function("lstm", _IFCO, projects=True),
    "lstm-zoneout": Function("lstm", _IFCO, peepholes=True, zoneout="draws"),
    "lstm-zoneout-clip": Function("lstm", _IFCO, {"cell_clip": 0.35}, zoneout="draws"),
    "lstm-zoneout-mean": Function("lstm", _IFCO, projects=True, zoneout="mean"),
    "gru-after-zoneout": Function("gru", _RUC, zoneout="draws"),
    "gru-after-zoneout-mean": Function("gru", _RUC, zoneout="mean"),
    "gru-before-zoneout": Function("gru", _RUC, _BEFORE, zoneout="draws"),
    "gru-before-zoneout-mean": Function("gru", _RUC, _BEFORE, zoneout="mean"),
    "rnn-tanh": Function("simple_rnn", ("h",)),
    "rnn-relu": Function("simple_rnn", ("h",), {"activation": "relu"}),
}


def random_inputs(
    function: Function, dims, dtype, seed: int = 0, *, dropout=False, projected=False
) -> dict[str, np.ndarray]:
    """All arrays of a call by name, [T, B, …]; "dropout" is one of them where it is asked for."""
    inputs = {}
    for position, (name, shape) in enumerate(function.shapes(dims, projected).items()):
        value = np.random.default_rng([seed, position, *dims]).normal(size=shape)
        if name.startswith("w_"):
            value /= np.sqrt(max(shape[0], 1))
        inputs[name] = (1 + value / 4 if name.startswith("gamma") else value).astype(dtype)
    if dropout:
        # A power of two rounds nothing, so that relu's kink is where the oracle has it.
        drawn = np.random.default_rng(seed).random((len(function.gates), *inputs["h"].shape)) < 0.5
        inputs["dropout"] = np.where(drawn, 2.0, 0.0).astype(dtype)
    return inputs


def norms_of(values: dict) -> dict:
    """The norms as the functions take them, of gammas and betas that are taken out of `values`."""
    return {
        name: (values.pop(f"gamma_{of}"), values.pop(f"beta_{of}"))
        for name, of in _NORMS.items()
        if f"gamma_{of}" in values
    }


def _zoneout_of(function: Function, values: Mapping, time_major: bool = True) -> dict:
    """What a call has of zoneout: draws that depend on its sizes alone, or rates."""
    names = list(_RATES)[: 1 + function.has_cs]
    if function.zoneout == "mean":
        return {name: _RATES[name] for name in names}
    steps, batch = tf.unstack(tf.shape(values["x"])[:2], 2)[:: 1 if time_major else -1]
    width = tf.shape(values["w_h"])[0]
    widths = (width, tf.shape(values["w_p"])[1] if "w_p" in values else width)
    found = {}
    for name, salt, width in zip(names, (7, 40), widths, strict=False):
        count = tf.range(steps * batch * width)
        drawn = tf.reshape((count * 71 + salt + count // 13 * 29) % 97 < 39, [steps, batch, width])
        found[name] = drawn if time_major else tf.transpose(drawn, [1, 0, 2])
    return found


def call(module, function: Function, inputs: Mapping, *, with_state=True, **options):
    """(outputs, last h[, last cs]) of the public function; `inputs` are tensors or arrays.

    x, mask and outputs are in the layout that options say.
    """
    values = dict(inputs)
    if function.zoneout:
        options |= _zoneout_of(function, values, options.get("time_major", False))
    x, h, cs = values.pop("x"), values.pop("h"), values.pop("cs", None)
    if function.peepholes:
        options["peepholes"] = tuple(values.pop(k) for k in _PEEPHOLES)
    if with_state:
        options["initial_state"] = h if cs is None else (h, cs)
    options["recurrent_dropout_factors"] = values.pop("dropout", None)
    options = {**function.options, **norms_of(values), **options}
    values.setdefault("w_x", None)
    outputs, state = getattr(module, function.name)(x, **values, **options)
    return (outputs, *state) if function.has_cs else (outputs, state)


class Oracle:
    """What a call with these arguments must give; arrays [T, B, …], float64.

    rounds_operands: whether the state is rounded to the inputs' type for a step's GEMM, as an
    engine may do in bfloat16 (docs/adr/0005-gemm.md).
    """

    def __init__(
        self, function, inputs, mask=None, lengths=None, go_backwards=False, *,
        rounds_operands=False, resets=None,
    ):  # fmt: skip
        names = {"h": "h_prev", "cs": "cs_prev", "dropout": "recurrent_dropout"}
        self._function, kind = function, inputs["x"].dtype
        self._values = {names.get(k, k): v for k, v in inputs.items()}
        numbers = ("forget_bias", "cell_clip", "epsilon", "norm_output_only")
        options = {k: v for k, v in function.options.items() if k in numbers}
        if mask is not None:
            self._values["mask"] = mask
        if resets is not None:
            self._values["resets"] = resets
        if function.zoneout == "draws":
            self._values |= {k: v.numpy() for k, v in _zoneout_of(function, inputs).items()}
        elif function.zoneout:
            options["zoneout_rates"] = tuple(_RATES.values())
        self._options = sequence.Options(
            function.gates,
            backwards=go_backwards,
            lengths=None if lengths is None else tuple(lengths),
            projected_input="w_x" not in inputs,
            relu=function.options.get("activation") == "relu",
            stored=lambda h: h.astype(kind).astype(np.float64),
            multiplied=lambda h: h.astype(kind).astype(np.float64) if rounds_operands else h,
            **options,
        )
        self._outputs = sequence.forward(function.cell, self._values, self._options)

    def _names(self):
        return ("h", "h_last", "cs_last")[: 2 + self._function.has_cs]

    def outputs(self):
        """(outputs, last h[, last cs])."""
        return tuple(self._outputs[name] for name in self._names())

    def gradients(self, cotangents, saved=None) -> dict[str, np.ndarray]:
        """By the names of the inputs; cotangents of what outputs() gives, None for zeros.

        saved: the outputs of the call, if another rounding of them may be past the kink of relu.
        """
        given = zip(self._names(), cotangents, strict=True)
        values = self._values | self._outputs
        if saved is not None and self._options.relu:
            values["h_unrounded"] = saved
        values |= {f"{name}_grad": c for name, c in given if c is not None}
        found = sequence.backward(self._function.cell, values, self._options)
        if self._function.cell == "gru":
            found["b_h"] = found["b_x"]
        names = {"h_prev": "h", "cs_prev": "cs"}
        return {names.get(k, k): v for k, v in found.items()}


def laid_out(array, time_major: bool):
    """From time-major to the layout of a call, or back."""
    if time_major or array is None:
        return array
    return np.swapaxes(np.asarray(array), 0, 1)


def options_of(
    mask, lengths, time_major, go_backwards=False, lengths_type=np.int32, resets=None
) -> dict:
    options = {"time_major": time_major, "go_backwards": go_backwards}
    if resets is not None:
        options["resets"] = tf.constant(laid_out(resets, time_major))
    if mask is not None:
        options["mask"] = tf.constant(laid_out(mask, time_major))
    if lengths is not None:
        options["lengths"] = tf.constant(np.asarray(lengths).astype(lengths_type))
    return options


def run(module, function: Function, inputs: Mapping, options: Mapping, cotangents=None):
    """Outputs [T, B, …] first, and the gradients by name when there are cotangents."""
    time_major = options["time_major"]
    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    tensors["x"] = tf.constant(laid_out(inputs["x"], time_major))
    if cotangents is None:
        outputs, gradients = call(module, function, tensors, **options), {}
    else:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = call(module, function, tensors, **options)
            used = [k for k, c in enumerate(cotangents) if c is not None]
        given = [tf.constant(laid_out(cotangents[k], time_major or k > 0)) for k in used]
        found = tape.gradient([outputs[k] for k in used], tensors, output_gradients=given)
        assert found.pop("dropout", None) is None
        gradients = {k: np.asarray(v) for k, v in found.items()}
        gradients["x"] = laid_out(gradients["x"], time_major)
    values = [np.asarray(o) for o in outputs]
    return [laid_out(values[0], time_major), *values[1:]], gradients


def cotangents_of(outputs, dtype, seed: int = 7) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=np.shape(o)).astype(dtype) for o in outputs]


def check(
    module, function, dims, dtype, pattern, time_major, go_backwards=False, *,
    lengths_type=np.int32, resets=None, **more,
) -> None:  # fmt: skip
    """Outputs and gradients of one call against the oracle; more: dropout and projected."""
    kind = block_cells.numpy_type(dtype)
    inputs = random_inputs(function, dims, kind, **more)
    options = options_of(*pattern, time_major, go_backwards, lengths_type, resets)
    oracle = Oracle(function, inputs, *pattern, go_backwards, resets=resets)
    want = oracle.outputs()
    cotangents = cotangents_of(want, kind)
    got, gradients = run(module, function, inputs, options, cotangents)
    if dtype == "bfloat16":
        # Behind a norm, which divides by a deviation, the rounding of an operand is more than that
        # of an output: 2.3 eps of an element were seen, and 0.5 when the oracle rounds likewise.
        rounds = Oracle(
            function, inputs, *pattern, go_backwards, rounds_operands=True, resets=resets
        ).outputs()
        want = min(
            want, rounds, key=lambda one: np.abs(got[0].astype(float) - one[0]).max(initial=0)
        )
    what = f"{function} {dims} {dtype} {time_major} {go_backwards} {more}"
    t, b, i, h = dims
    bound = tolerances.bound(dtype, max(t, 1) * (i + h))
    for value, expected, part in zip(got, want, ("outputs", "h", "cs"), strict=False):
        assert value.dtype == kind, what
        compare.assert_close(value, expected, bound, f"{part} of {what}")
    bound = tolerances.composed_bound(dtype, max(t, 1) * max(i + h, 4 * h, b))
    expected = oracle.gradients(cotangents, got[0])
    assert gradients.keys() == expected.keys() & inputs.keys(), what
    for key, value in gradients.items():
        compare.assert_close(value, expected[key], bound, f"gradient of {key}, {what}")


def resets_of(dims, kind: str, seed: int = 0) -> np.ndarray:
    """[T, B]: at no step, at all, now and then, or one in each row."""
    t, b = dims[:2]
    rng = np.random.default_rng([seed, t, b, 5])
    share = {"none": 0.0, "all": 1.0, "many": 0.5, "few": 0.15}
    if kind in share:
        return rng.random((t, b)) < share[kind]
    place = {"first": 0, "last": t - 1}
    at = np.full(b, place[kind]) if kind in place else rng.integers(0, max(t, 1), b)
    return np.arange(t)[:, None] == at[None, :]


RESETS = ("none", "all", "many", "few", "first", "last", "one in each row")


def patterns(dims, seed: int = 0) -> dict[str, tuple]:
    """name: (mask [T, B] or None, lengths [B] or None), of every kind that a caller may have."""
    t, b = dims[:2]
    rng = np.random.default_rng([seed, t, b])
    steps, rows = np.arange(t)[:, None], np.arange(b)[None, :]
    lengths = rng.integers(0, t + 1, b)
    holes = rng.random((t, b)) < 0.6
    one_row = np.ones((t, b), bool)
    one_row[:, : max(b // 2, 1)] = False
    return {
        "none": (None, None),
        "all": (np.ones((t, b), bool), None),
        "nothing": (np.zeros((t, b), bool), None),
        "rows without a step": (one_row, None),
        "right padding": (steps < lengths, None),
        "left padding": (steps >= lengths, None),
        "holes": (holes, None),
        "every other step": ((steps + rows) % 2 == 0, None),
        "first step only": (np.broadcast_to(steps == 0, (t, b)), None),
        "last step only": (np.broadcast_to(steps == t - 1, (t, b)), None),
        "one step for all": (np.broadcast_to(steps != t // 2, (t, b)), None),
        "lengths": (None, lengths),
        "lengths of 0 and T": (None, np.where(np.arange(b) % 2, t, 0)),
        "all lengths 0": (None, np.zeros(b, np.int64)),
        "all lengths T": (None, np.full(b, t)),
        "lengths and holes": (holes, lengths),
    }
