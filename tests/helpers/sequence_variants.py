"""Variants of the sequence functions, and calls of them with all of their options."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from helpers import sequence_functions

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
    zoneout: str = ""  # "draws", or "mean"

    @property
    def cell_state(self) -> bool:
        return self.name.endswith("lstm")

    @property
    def normalized(self) -> bool:
        return self.name.startswith("layer_norm")


VARIANTS = {
    "lstm": Variant("lstm", "ifco", {"forget_bias": 0.5}),
    "lstm-peephole": Variant("lstm", "ifco", {"forget_bias": 0.5}, peepholes=True),
    "lstm-projection": Variant("lstm", "ifco", projects=True),
    "layer-norm-lstm": Variant("layer_norm_lstm", "ifco", {"epsilon": 0.125}),
    "layer-norm-lstm-output": Variant(
        "layer_norm_lstm", "ifco", {"epsilon": 0.125, "norm_output_only": True}
    ),
    "layer-norm-gru": Variant("layer_norm_gru", "ruc", {"epsilon": 0.125}),
    "layer-norm-gru-urc": Variant("layer_norm_gru", "urc", {"epsilon": 0.125, "gate_order": "urc"}),
    "gru-after": Variant("gru", "ruc"),
    "gru-after-urc": Variant("gru", "urc", {"gate_order": "urc"}),
    "gru-before": Variant("gru", "ruc", {"reset_after": False}),
    "gru-before-urc": Variant("gru", "urc", {"reset_after": False, "gate_order": "urc"}),
    "lstm-zoneout": Variant("lstm", "ifco", peepholes=True, zoneout="draws"),
    "lstm-zoneout-clip": Variant("lstm", "ifco", {"cell_clip": 0.375}, zoneout="draws"),
    "lstm-zoneout-mean": Variant("lstm", "ifco", projects=True, zoneout="mean"),
    "gru-after-zoneout": Variant("gru", "ruc", zoneout="draws"),
    "gru-after-zoneout-mean": Variant("gru", "ruc", zoneout="mean"),
    "gru-before-zoneout": Variant("gru", "ruc", {"reset_after": False}, zoneout="draws"),
    "gru-before-zoneout-mean": Variant("gru", "ruc", {"reset_after": False}, zoneout="mean"),
    "rnn-tanh": Variant("simple_rnn", "h"),
    "rnn-relu": Variant("simple_rnn", "h", {"activation": "relu"}),
}


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
    biases = ("b_x", "b_h") if variant.name.endswith("gru") else ("b",)
    shapes |= {name: (gates * h,) for name in biases}
    if variant.projects:
        shapes["w_p"] = (width, h)
    if variant.peepholes:
        shapes |= {name: (h,) for name in ("wci", "wcf", "wco")}
    if variant.normalized:
        shapes |= {f"{kind}_{of}": (gates * h,) for of in "xh" for kind in ("gamma", "beta")}
        shapes |= {"gamma_c": (h,), "beta_c": (h,)} if variant.cell_state else {}
    rng = np.random.default_rng([seed, *dims, gates])
    values = {}
    for name, shape in shapes.items():
        scale = 1 / np.sqrt(max(shape[0], 1)) if name.startswith("w_") else 1.0
        value = scale * rng.normal(size=shape)
        values[name] = (1 + value / 4 if name.startswith("gamma") else value).astype(dtype)
    if dropout:
        # A power of two rounds nothing, so that relu's kink is where the oracle has it.
        values["dropout"] = np.where(rng.random((gates, b, width)) < 0.5, 2.0, 0.0).astype(dtype)
    return values


# Powers of two, so that the mean of float32 numbers has the same terms in every type.
RATES = {"zoneout_h": 0.25, "zoneout_c": 0.125}


def zoneout_of(variant, values, time_major=True):
    """What a call has of zoneout: draws that depend on its sizes alone, or rates."""
    names = list(RATES)[: 2 if variant.cell_state else 1]
    if variant.zoneout == "mean":
        return {name: RATES[name] for name in names}
    steps, batch = tf.unstack(tf.shape(values["x"])[:2], 2)[:: 1 if time_major else -1]
    found = {}
    for name, salt, width in zip(names, (7, 40), _widths(values), strict=False):
        count = tf.range(steps * batch * width)
        drawn = tf.reshape((count * 71 + salt + count // 13 * 29) % 97 < 39, [steps, batch, width])
        found[name] = drawn if time_major else tf.transpose(drawn, [1, 0, 2])
    return found


def _widths(values):
    """P and H."""
    width = tf.shape(values["w_h"])[0]
    return width, tf.shape(values["w_p"])[1] if "w_p" in values else width


def call(tfb, variant, tensors, **options):
    values = dict(tensors)
    if variant.zoneout:
        options |= zoneout_of(variant, values, options.get("time_major", False))
    x, h, cs = values.pop("x"), values.pop("h"), values.pop("cs", None)
    dropout = values.pop("dropout", None)
    if variant.peepholes:
        options["peepholes"] = tuple(values.pop(k) for k in ("wci", "wcf", "wco"))
    values |= sequence_functions.norms_of(values)
    values.setdefault("w_x", None)
    outputs, state = getattr(tfb, variant.name)(
        x,
        initial_state=h if cs is None else (h, cs),
        recurrent_dropout_factors=dropout,
        **values,
        **variant.options,
        **options,
    )
    return [outputs, *state] if variant.cell_state else [outputs, state]


def differentiated_sum(tfb, variant, tensors):
    """Outputs of a time-major call, and the gradients of their sum by name."""
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = call(tfb, variant, tensors, time_major=True)
        total = tf.add_n([tf.reduce_sum(o) for o in outputs])
    gradients = tape.gradient(total, tensors)
    assert gradients.pop("dropout", None) is None
    return outputs, gradients
