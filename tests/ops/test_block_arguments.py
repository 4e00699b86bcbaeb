"""What block_lstm, block_lstm_v2, block_gru and the cells say of arguments that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from helpers.wrapper_calls import (
    BLOCK_FUNCTIONS,
    CELLS,
    IN,
    B,
    H,
    T,
    as_keras,
    block_arguments,
    block_call,
    refused,
    some,
    state_name,
    wrong_type,
)


def _block(tfb, name, x, **options):
    return block_call(tfb, name, x=x, **options).h


def _block_of(tfb, name, x):
    return lambda: _block(tfb, name, x)


all_block_functions = pytest.mark.parametrize("name", BLOCK_FUNCTIONS)
cells_too = pytest.mark.parametrize("name", [*BLOCK_FUNCTIONS, *CELLS])
with_tuples = pytest.mark.parametrize("name", ["block_lstm", "block_lstm_v2", "lstm_block_cell"])


@all_block_functions
def test_a_length_is_an_integer(tfb, name):
    x = some(T, B, IN)
    for wrong, kind in ((2.7, "float32"), (True, "bool"), (np.float64(2), "float64")):
        with wrong_type(f"{name}: seq_len_max must be of an integer type, got {kind}"):
            _block(tfb, name, x, seq_len_max=wrong)
    want = _block(tfb, name, x, seq_len_max=2)
    for length in (np.int16(2), tf.constant(2, tf.uint8), tf.Variable(2)):
        np.testing.assert_array_equal(_block(tfb, name, x, seq_len_max=length), want)


@all_block_functions
def test_whatever_x_is_given_as(tfb, name):
    x = some(T, B, IN)
    want = _block(tfb, name, x)
    variable = tf.Variable(x, shape=tf.TensorShape(None))
    for given in (variable, x.numpy().astype(np.float64), x.numpy().tolist()):
        np.testing.assert_array_equal(_block(tfb, name, given), want)
        graph = tf.function(_block_of(tfb, name, given))
        np.testing.assert_array_equal(graph(), want)
    for scalar in (1.0, some()):
        with refused(f"{name}: x must have "):
            _block(tfb, name, scalar)


@cells_too
def test_none_is_no_tensor_of_a_block(tfb, name):
    for argument in block_arguments(name):
        is_tuple = argument == state_name(name) and "lstm" in name
        if not is_tuple and argument != "initial_state":
            message = f"{name}: {argument} must be a tensor, got None"
            with wrong_type(message):
                block_call(tfb, name, **{argument: None})
            graph = tf.function(lambda argument=argument: block_call(tfb, name, **{argument: None}))
            with wrong_type(message):
                graph()


@with_tuples
@pytest.mark.parametrize(
    "argument,parts,count", [("state", "h, cs", 2), ("peepholes", "wci, wcf, wco", 3)]
)
def test_tuples_of_a_block(tfb, name, argument, parts, count):
    sizes = (B, H) if argument == "state" else (H,)
    argument = state_name(name) if argument == "state" else argument
    for wrong in (0, 1, count + 1):
        with wrong_type(f"{name}: {argument} must be ({parts}), got {wrong} of them"):
            block_call(tfb, name, **{argument: [some(*sizes)] * wrong})
    with wrong_type(f"{name}: {argument} must be ({parts}), got a value of type float"):
        block_call(tfb, name, **{argument: 0.0})
    with wrong_type(f"{name}: {argument}[0] must be a tensor, got None"):
        block_call(tfb, name, **{argument: (None,) * count})
    if argument == "state":
        with wrong_type(f"{name}: {argument} must be ({parts}), got None"):
            block_call(tfb, name, **{argument: None})


@cells_too
def test_tensors_that_do_not_fit_a_block(tfb, name):
    x = block_arguments(name)["x"]
    with wrong_type(f"{name}: x must be a dense tensor, got a RaggedTensor; pass its to_tensor()"):
        block_call(tfb, name, x=tf.RaggedTensor.from_tensor(x))
    weights, bias = ("w_c", "b_c") if "gru" in name else ("w", "b")
    with wrong_type(f"{name}: {weights} must be a dense tensor, got a SparseTensor"):
        block_call(tfb, name, **{weights: tf.sparse.from_dense(some(IN + H, H))})
    first = "w_ru" if "gru" in name else "w"
    with wrong_type(f"{name}: {bias} must be of type float32, as {first} is, got float64"):
        block_call(tfb, name, **{bias: tf.zeros([H], tf.float64)})


@cells_too
def test_every_tensor_of_a_block_may_be_a_variable_of_keras(tfb, name):
    arguments = block_arguments(name)
    arguments |= {} if "gru" in name else {"peepholes": (some(H), some(H), some(H))}
    arguments |= {} if name in CELLS else {"seq_len_max": tf.constant(2)}
    want = block_call(tfb, name, **arguments).h
    alone = [{**arguments, key: as_keras(value)} for key, value in arguments.items()]
    for given in (*alone, as_keras(arguments)):
        np.testing.assert_array_equal(block_call(tfb, name, **given).h, want)


@with_tuples
def test_weights_of_a_block_without_peepholes_take_the_type_of_x(tfb, name):
    weights = {
        k: v.numpy().astype(np.float64) for k, v in block_arguments(name).items() if k in ("w", "b")
    }
    want = block_call(tfb, name).h
    np.testing.assert_array_equal(block_call(tfb, name, **weights).h, want)


@cells_too
def test_a_wrong_shape_is_put_on_its_argument(tfb, name):
    weights, bias = ("w_ru", "b_c") if "gru" in name else ("w", "b")
    form, size = ("H", H) if "gru" in name else ("4H", 4 * H)
    with refused(f"{name}: {bias} must have shape [{form}] = [{size}], got [3]"):
        block_call(tfb, name, **{bias: some(3)})
    x = block_arguments(name)["x"]
    with refused(f"{name}: {weights} must have shape [I+H, ") as error:
        block_call(tfb, name, x=tf.concat([x, x], axis=-1))
    assert f", {2 * IN}], {'b_c' if weights == 'x' else weights} [" in str(error.value)


@with_tuples
def test_the_state_is_h_and_cs(tfb, name):
    """As in lstm, and as TensorFlow's ops do not have it: equal shapes would hide it."""
    h, cs = some(B, H), some(B, H) * 7
    state = tfb.LSTMState(h=h, cs=cs)
    got = block_call(tfb, name, **{state_name(name): state})
    np.testing.assert_array_equal(block_call(tfb, name, **{state_name(name): (h, cs)}).h, got.h)
    ops = {"block_lstm": "BlockLSTM", "block_lstm_v2": "BlockLSTMV2"}
    given = block_arguments(name)
    del given[state_name(name)]
    none = {f"wc{gate}": tf.zeros([0]) for gate in "ifo"}
    options = {"cell_clip": 0.0, **({} if name == "block_lstm_v2" else {"forget_bias": 0.0})}
    options |= {} if name in CELLS else {"seq_len_max": tf.constant(T, tf.int64)}
    raw = getattr(tfb.raw_ops, ops.get(name, "LSTMBlockCell"))
    want = raw(**given, **none, **options, h_prev=h, cs_prev=cs)
    for mine, expected in zip(got, want, strict=True):
        np.testing.assert_array_equal(mine, expected)
    assert got._fields == want._fields


@with_tuples
def test_calls_in_the_order_of_tensorflow_are_refused(tfb, name):
    """The state was (cs, h) and came after x; a step takes `state`, a sequence `initial_state`."""
    given = block_arguments(name)
    state = given.pop(state_name(name))
    with pytest.raises(TypeError, match="positional"):
        getattr(tfb, name)(given["x"], state, given["w"], given["b"])
    other = "initial_state" if name in CELLS else "state"
    with pytest.raises(TypeError, match="state"):
        getattr(tfb, name)(**given, **{other: state})


@all_block_functions
def test_without_a_state_a_block_starts_from_zeros(tfb, name):
    given = block_arguments(name)
    zeros = tf.nest.map_structure(tf.zeros_like, given.pop("initial_state"))
    want = getattr(tfb, name)(**given, initial_state=zeros)
    for graph in (False, True):
        function = tf.function(getattr(tfb, name)) if graph else getattr(tfb, name)
        np.testing.assert_array_equal(function(**given).h, want.h)
