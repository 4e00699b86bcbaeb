"""Weights in every format: the framework computes with them what they say, and gives them back.

A format that passes both reads what the framework itself writes, too: that what is written has the
framework's own names and shapes is what it runs on.
"""

from __future__ import annotations

import dataclasses

import keras
import ml_dtypes
import numpy as np
import pytest
from helpers import weight_stacks
from helpers.compare import bits
from helpers.weight_formats import FORMATS, assert_computes, run_keras, stacked
from helpers.weight_stacks import CELLS, NORM_CELLS, Stack

from tf_blockrnn import weights

ONE, NONE = ("b_x",), ()


@pytest.fixture(autouse=True)
def _package(tfb):
    """Whatever another test left as Keras' default."""
    keras.config.set_dtype_policy("float32")


BOTH = [Stack(cell, layers=layers, directions=layers) for cell in CELLS for layers in (1, 2)]
TORCH = [*BOTH, *(Stack(cell, biases=NONE) for cell in CELLS)]
PROJECTED = Stack("lstm", layers=2, directions=2, proj=2)
# The biases that each cell has in Keras.
KERAS = [
    Stack(cell, layers, layers, biases=biases, reset_after=reset_after)
    for cell, reset_after, own in (
        ("gru", True, ("b_x", "b_h")),
        ("gru", False, ONE),
        ("lstm", True, ONE),
        ("rnn_tanh", True, ONE),
        ("rnn_relu", True, ONE),
    )
    for layers, biases in ((1, NONE), (2, own))
]
EXTENDED = [
    Stack("lstm", biases=ONE, peepholes=True),
    Stack("lstm", biases=NONE, proj=2),
    Stack("lstm", layers=2, directions=2, biases=ONE, peepholes=True, proj=3),
    Stack("layer_norm_lstm", biases=ONE),
    Stack("layer_norm_lstm", layers=2, directions=2, biases=ONE, norm_output_only=True),
    Stack("layer_norm_lstm", biases=NONE, norm_output_only=True),
    Stack("layer_norm_gru"),
    Stack("layer_norm_gru", biases=NONE),
    Stack("layer_norm_gru", layers=2, directions=2),
]
# What the arrays of a layer do not hold. Sessions have these numbers in float32, where 0.25 is the
# same.
OPTIONS = [
    Stack("lstm", biases=ONE, peepholes=True, proj=2, cell_clip=0.25),
    Stack("lstm", biases=ONE, zoneout_h=0.25, zoneout_c=0.125),
    Stack("gru", directions=2, zoneout_h=0.25),
    Stack("gru", biases=ONE, reset_after=False, zoneout_h=0.25),
]
HARD = [
    Stack("lstm", biases=ONE, hard_sigmoid=1 / 6),
    Stack("gru", layers=2, directions=2, activation="relu"),
    Stack("gru", biases=ONE, reset_after=False, activation="relu", hard_sigmoid=1 / 6),
]
STEEP = Stack("lstm", biases=ONE, hard_sigmoid=0.2)
HARD_ONNX = [dataclasses.replace(stack, biases=("b_x", "b_h")) for stack in (*HARD, STEEP)]
STACKS = {
    "cudnn": [*BOTH, PROJECTED, Stack("lstm", proj=4), Stack("gru", inputs=4)],
    "torch": [*TORCH, PROJECTED],
    "onnx": [
        *TORCH,
        Stack("gru", layers=2, reset_after=False),
        Stack("lstm", directions=2, peepholes=True),
        Stack("lstm", peepholes=True, biases=NONE),
        *HARD_ONNX,
        Stack("lstm", directions=2, activation="relu", hard_sigmoid=1 / 6),
    ],
    "onnx nodes": [*BOTH, *HARD_ONNX],
    "keras": [*KERAS, *HARD],
    "keras arrays": KERAS,
    "our layers": [
        *(KERAS[1], *EXTENDED, *OPTIONS, *HARD),
        Stack("lstm", biases=ONE, peepholes=True, proj=2, activation="relu", hard_sigmoid=1 / 6),
    ],
    "our arrays": [KERAS[1], *EXTENDED],
    "npz": [*EXTENDED, *OPTIONS, *HARD, STEEP],
    "addons": [
        Stack("layer_norm_lstm", biases=NONE),
        Stack("layer_norm_lstm", biases=ONE),
        Stack("layer_norm_lstm", layers=2, directions=2, biases=ONE),
    ],
}
CASES = [
    (name, dataclasses.replace(stack, dtype=FORMATS[name].dtype))
    for name, stacks in STACKS.items()
    for stack in stacks
]


@pytest.mark.parametrize(("name", "stack"), CASES, ids=str)
def test_computes_with_them_and_gives_them_back(name, stack):
    kind, described = FORMATS[name], weight_stacks.random_weights(stack)
    held = kind.write(described)
    assert kind.read(held, stack) == described
    if kind.run is None:
        return
    x = weight_stacks.inputs(stack).astype(stack.dtype)
    assert_computes(kind.run(held, x, stack), weight_stacks.run(described, x), stack)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", sorted(STACKS.keys() - {"addons"}))
def test_every_bit_of_a_type(name, dtype):
    stack = Stack("gru", layers=2, directions=2, dtype=np.dtype(getattr(ml_dtypes, dtype, dtype)))
    described = weight_stacks.random_weights(stack)
    read = FORMATS[name].read(FORMATS[name].write(described), stack)
    assert read == described and read.dtype.name == dtype


@pytest.mark.parametrize("biases", [("b_x",), ("b_h",)])
@pytest.mark.parametrize("name", ["cudnn", "torch", "onnx nodes", "keras"])
def test_a_missing_bias_becomes_zeros(name, biases):
    described = weight_stacks.random_weights(Stack("gru", biases=biases))
    read = FORMATS[name].read(FORMATS[name].write(described), Stack("gru"))
    (one,), (given,) = (list(each.layers[0]) for each in (read, described))
    for bias in ("b_x", "b_h"):
        want = getattr(given, bias)
        assert bits(getattr(one, bias)) == bits(np.zeros([3, 4]) if want is None else want)
    assert dataclasses.replace(one, b_x=given.b_x, b_h=given.b_h) == given


@pytest.mark.parametrize("cell", CELLS)
def test_two_biases_are_summed_where_keras_has_one(cell):
    stack = Stack(cell, reset_after=False)
    described = weight_stacks.random_weights(stack)
    one, layers = described.layers[0].forward, FORMATS["keras"].write(described)
    read = weights.from_keras(layers).layers[0].forward
    assert read.b_h is None and bits(read.b_x) == bits(one.b_x + one.b_h)
    x = weight_stacks.inputs(stack)
    assert_computes([run_keras(layers, x)], weight_stacks.run(described, x), stack)


# ---- what a format cannot hold

WRITERS = {
    "cuDNN": weights.to_cudnn,
    "PyTorch": weights.to_torch,
    "ONNX": weights.to_onnx,
    "ONNX model": weights.to_onnx_model,
    "Keras": weights.to_keras,
    "an array of a layer": FORMATS["our arrays"].write,
    "TensorFlow Addons": weights.to_addons,
    "haste": weights.to_haste,
}
TF1 = ("LSTMCell", "GRUCell", "CudnnLSTM", "CudnnGRU", "BasicRNNCell")
CLIPPED, PEEPHOLES = Stack("lstm", cell_clip=2.0), Stack("lstm", peepholes=True)
BEFORE, NARROW = Stack("gru", reset_after=False), Stack("lstm", proj=2)
UNSUPPORTED = [
    *(
        (name, dataclasses.replace(stack, **{what: value}), f"{name} has no {what}.*, here it is ")
        for name in ("cuDNN", "PyTorch", "ONNX", "LSTMCell", "an array of a layer", "Keras")
        for stack, what, value in (
            (Stack("lstm", biases=ONE), "zoneout_c", 0.5),
            (Stack("gru"), "zoneout_h", 0.25),
            (Stack("lstm", biases=ONE), "activation", "relu"),
            (Stack("lstm", biases=ONE), "hard_sigmoid", 1 / 6),
        )
        if name != "LSTMCell" or stack.cell == "lstm"
        if name not in ("Keras", "ONNX") or "zoneout" in what
    ),
    ("Keras", STEEP, "hard sigmoid of Keras has the slope 0.166667, here it is 0.2"),
    ("Keras", HARD[0], "an array of a layer has no hard_sigmoid.*to_keras_layers returns"),
    *(
        (name, CLIPPED, f"{name} has no cell_clip, here it is 2")
        for name in ("cuDNN", "PyTorch", "ONNX", "an array of a layer", "BasicLSTMCell")
    ),
    *(
        (name, PEEPHOLES, f"{name} has no peepholes, layer 0, forward")
        for name in ("cuDNN", "PyTorch", "BasicLSTMCell", "CudnnLSTM")
    ),
    *(
        (name, NARROW, f"{name} has no projection, layer 0, forward")
        for name in ("ONNX", "LSTMBlockCell")
    ),
    *(("Keras", stack, 'LSTM has .package="tf_blockrnn".') for stack in (NARROW, PEEPHOLES)),
    ("cuDNN", BEFORE, "cuDNN's gru resets after.*reset before it"),
    ("PyTorch", BEFORE, "PyTorch's gru resets after.*reset before it"),
    ("CudnnGRU", BEFORE, "CudnnGRU's gru resets after"),
    ("GRUBlockCell", Stack("gru"), "GRUBlockCell's gru resets before the GEMM"),
    ("cuDNN", Stack("lstm", proj=5), "with P in 1..4 for H = 4, here P, H = 5, 4"),
    ("PyTorch", Stack("lstm", proj=4), "with P in 1..3 for H = 4, here P, H = 4, 4"),
    ("LSTMCell", Stack("gru"), "LSTMCell cannot represent gru: it has lstm"),
    ("LSTMBlockFusedCell", Stack("lstm", layers=2), "is one layer of one direction"),
    ("TensorFlow Addons", Stack("lstm"), "TensorFlow Addons cannot represent lstm"),
    ("TensorFlow Addons", Stack("layer_norm_gru"), "Addons cannot represent layer_norm_gru"),
    (
        "TensorFlow Addons",
        Stack("layer_norm_lstm", norm_output_only=True),
        "norm_output_only=True",
    ),
    ("haste", Stack("lstm"), "haste cannot represent lstm"),
    *(
        (name, Stack(cell), f"^{name.split()[0]} cannot represent {cell}: it has no recurrent lay")
        for name in ("cuDNN", "PyTorch", "ONNX", "ONNX model", "Keras")
        for cell in NORM_CELLS
    ),
    *(
        (name, Stack(cell), f"^{name} cannot represent {cell}")
        for name in TF1
        for cell in NORM_CELLS
    ),
]


@pytest.mark.parametrize(("name", "stack", "words"), UNSUPPORTED, ids=str)
def test_what_a_format_cannot_hold(name, stack, words):
    described = weight_stacks.random_weights(stack)
    with pytest.raises(weights.UnsupportedError, match=words):
        if name in WRITERS:
            WRITERS[name](described)
        else:
            weights.to_tf1(described, cell=name)


def stack_of(*stacks: Stack):
    return stacked([weight_stacks.random_weights(stack) for stack in stacks])


@pytest.mark.parametrize("write", [weights.to_cudnn, weights.to_torch])
@pytest.mark.parametrize(
    ("described", "words"),
    [
        (
            stack_of(Stack("gru"), Stack("gru", inputs=4, units=5)),
            "one size for all layers: .*H, P = 4, 4, layer 1, forward has 5, 5",
        ),
        (
            stack_of(Stack("gru"), Stack("gru", directions=2, inputs=4)),
            "all layers in one direction or all in both",
        ),
        # The identity as a projection, in the lower layer only.
        (
            stack_of(Stack("lstm", proj=4), Stack("lstm", inputs=4)),
            "has a projection in all layers or in none, layer 0 and layer 1",
        ),
    ],
    ids=["sizes", "directions", "projections"],
)
def test_stacks_of_unlike_layers(write, described, words):
    with pytest.raises(weights.UnsupportedError, match=words):
        write(described)


@pytest.mark.parametrize("cell", NORM_CELLS)
def test_formats_without_norms_read_none(cell):
    state = {"weight_ih_l0": np.ones([12, 2]), "weight_hh_l0": np.ones([12, 3])}
    with pytest.raises(ValueError, match=f"cell must be one of lstm, .*rnn_relu, got '{cell}'"):
        weights.from_torch(state, cell=cell)
    with pytest.raises(ValueError, match=f"rnn_mode must be one of .*rnn_relu, got '{cell}'"):
        weights.from_cudnn(np.ones(8, "f4"), rnn_mode=cell, num_units=1, input_size=1)
