"""LSTM, GRU and simple RNN over sequences in TensorFlow's ops, step by step, for derivatives.

What automatic differentiation makes of these is what the ops' derivatives of every order are
checked against. Written from the equations in docs/ops.md. Sequences are [T, B, …]. The bound of a
cell state has the derivative 1, as in the ops.
"""

from __future__ import annotations

import tensorflow as tf


def _clipped(cs, clip):
    if clip is None or clip <= 0:
        return cs
    return cs + tf.stop_gradient(tf.clip_by_value(cs, -clip, clip) - cs)


def lstm_step(bars, cs, peepholes=None, forget_bias=0.0, clip=None):
    """One step from the pre-activations i, f, ci, o: the gates and states by name."""
    i, f, ci, o = tf.split(bars, 4, axis=1)
    if peepholes is not None:
        i, f = i + cs * peepholes[0], f + cs * peepholes[1]
    i, f, ci = tf.sigmoid(i), tf.sigmoid(f + forget_bias), tf.tanh(ci)
    cs = _clipped(ci * i + cs * f, clip)
    if peepholes is not None:
        o = o + cs * peepholes[2]
    o, co = tf.sigmoid(o), tf.tanh(cs)
    return {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co, "h": o * co}


def gru_step(x, h, w_ru, w_c, b_ru, b_c):
    """One step whose reset gate acts before the product."""
    gates = tf.sigmoid(tf.matmul(tf.concat([x, h], 1), w_ru) + b_ru)
    r, u = tf.split(gates, 2, axis=1)
    c = tf.tanh(tf.matmul(tf.concat([x, r * h], 1), w_c) + b_c)
    return {"r": r, "u": u, "c": c, "h": u * h + (1 - u) * c}


def gru_after_step(of_x, of_h, h):
    """One step from the products of r, u, c, whose reset gate acts after the product."""
    (r_x, u_x, c_x), (r_h, u_h, c_h) = (tf.split(each, 3, axis=1) for each in (of_x, of_h))
    r, u = tf.sigmoid(r_x + r_h), tf.sigmoid(u_x + u_h)
    return u * h + (1 - u) * tf.tanh(c_x + r * c_h)


def stacked(steps):
    """From a step's dicts to a dict of sequences."""
    return {name: tf.stack([step[name] for step in steps]) for name in steps[0]}


def block_lstm(given, order, valid, forget_bias=0.0, clip=None, use_peephole=False):
    """The outputs of BlockLSTM by name; `order` are its gates, the first letters of icfo."""
    columns = dict(zip(order, tf.split(given["w"], 4, axis=1), strict=True))
    biases = dict(zip(order, tf.split(given["b"], 4), strict=True))
    w, b = (tf.concat([parts[k] for k in "ifco"], -1) for parts in (columns, biases))
    peepholes = [given[k] for k in ("wci", "wcf", "wco")] if use_peephole else None
    h, cs, steps = given["h_prev"], given["cs_prev"], []
    for number, x in enumerate(tf.unstack(given["x"])):
        step = lstm_step(tf.matmul(tf.concat([x, h], 1), w) + b, cs, peepholes, forget_bias, clip)
        if number >= valid:
            step = {name: tf.zeros_like(value) for name, value in step.items()}
        h, cs = step["h"], step["cs"]
        steps.append(step)
    return stacked(steps)


def block_gru(given, valid):
    """The outputs of BlockGRU by name."""
    h, steps = given["h_prev"], []
    weights = [given[k] for k in ("w_ru", "w_c", "b_ru", "b_c")]
    for number, x in enumerate(tf.unstack(given["x"])):
        step = gru_step(x, h, *weights)
        if number >= valid:
            step = {name: tf.zeros_like(value) for name, value in step.items()}
        h = step["h"]
        steps.append(step)
    return stacked(steps)


def _direction(net, number, x, h, cs, weights, lengths):
    """One direction of one layer of `stack`: outputs, and the last states."""
    w_x, w_h, w_p, b_x, b_h = weights
    steps = list(range(x.shape[0]))
    outputs = [None] * len(steps)
    for t in reversed(steps) if number % net.directions else steps:
        of_x = (
            tf.concat([x[t]] * net.gates, 1) if w_x is None else tf.matmul(x[t], w_x, False, True)
        )
        of_x, of_h = of_x + b_x, tf.matmul(h, w_h, transpose_b=True) + b_h
        if net.mode == "lstm":
            made = lstm_step(of_x + of_h, cs)
            new_h, new_cs = made["h"], made["cs"]
            if w_p is not None:
                new_h = tf.matmul(new_h, w_p, transpose_b=True)
        elif net.mode == "gru":
            new_h, new_cs = gru_after_step(of_x, of_h, h), cs
        else:
            activate = tf.tanh if net.mode == "rnn_tanh" else tf.nn.relu
            new_h, new_cs = activate(of_x + of_h), cs
        alive = tf.constant([[t < length] for length in lengths])
        outputs[t] = tf.where(alive, new_h, tf.zeros_like(new_h))
        h = tf.where(alive, new_h, h)
        cs = tf.where(alive, new_cs, cs) if net.mode == "lstm" else cs
    return tf.stack(outputs), h, cs


def stack(net, given, lengths):
    """output, output_h and (lstm) output_c of a Network of helpers.reference.stack."""
    shapes, biases = [], []
    for number in range(net.layer_directions):
        inputs = net.inputs if number < net.directions else net.directions * net.width
        skips = net.skip and number < net.directions
        rows = net.gates * net.units
        shapes += [(rows, 0 if skips else inputs), (rows, net.width), (net.num_proj, net.units)]
        biases += [(rows,), (rows,)]
    begin, parts = 0, []
    for shape in (*shapes, *biases):
        size = 1
        for dim in shape:
            size *= dim
        parts.append(tf.reshape(given["params"][begin : begin + size], shape))
        begin += size
    x, last_h, last_c = given["input"], [], []
    for layer in range(net.layers):
        made = []
        for number in range(layer * net.directions, (layer + 1) * net.directions):
            w_x, w_h, w_p = parts[3 * number : 3 * number + 3]
            first_bias = len(shapes) + 2 * number
            weights = (
                None if net.skip and layer == 0 else w_x, w_h, w_p if net.num_proj else None,
                *parts[first_bias : first_bias + 2],
            )  # fmt: skip
            cs = given["input_c"][number] if net.mode == "lstm" else None
            outputs, h, cs = _direction(
                net, number, x, given["input_h"][number], cs, weights, lengths
            )
            made.append(outputs)
            last_h.append(h)
            last_c.append(cs)
        x = tf.concat(made, axis=2)
    states = [tf.stack(last_h)] + ([tf.stack(last_c)] if net.mode == "lstm" else [])
    return [x, *states]
