"""The LSTM with a bound of its cell state in TensorFlow's ops, step by step, for derivatives.

The bound has the derivative 1, which no difference of outputs shows. Written from the equations in
docs/ops.md. Sequences are [T, B, …].
"""

from __future__ import annotations

import tensorflow as tf


def lstm_step(bars, cs, clip, peepholes=None, forget_bias=0.0):
    """One step from the pre-activations i, f, ci, o: the gates and states by name."""
    i, f, ci, o = tf.split(bars, 4, axis=1)
    if peepholes is not None:
        i, f = i + cs * peepholes[0], f + cs * peepholes[1]
    i, f, ci = tf.sigmoid(i), tf.sigmoid(f + forget_bias), tf.tanh(ci)
    cs = ci * i + cs * f
    cs = cs + tf.stop_gradient(tf.clip_by_value(cs, -clip, clip) - cs)
    if peepholes is not None:
        o = o + cs * peepholes[2]
    o, co = tf.sigmoid(o), tf.tanh(cs)
    return {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co, "h": o * co}


def block_lstm(given, order, valid, clip, forget_bias=0.0, use_peephole=False):
    """The outputs of BlockLSTM by name; `order` are its gates, the first letters of icfo."""
    columns = dict(zip(order, tf.split(given["w"], 4, axis=1), strict=True))
    biases = dict(zip(order, tf.split(given["b"], 4), strict=True))
    w, b = (tf.concat([parts[k] for k in "ifco"], -1) for parts in (columns, biases))
    peepholes = [given[k] for k in ("wci", "wcf", "wco")] if use_peephole else None
    h, cs, steps = given["h_prev"], given["cs_prev"], []
    for number, x in enumerate(tf.unstack(given["x"])):
        step = lstm_step(tf.matmul(tf.concat([x, h], 1), w) + b, cs, clip, peepholes, forget_bias)
        if number >= valid:
            step = {name: tf.zeros_like(value) for name, value in step.items()}
        h, cs = step["h"], step["cs"]
        steps.append(step)
    return {name: tf.stack([step[name] for step in steps]) for name in steps[0]}
