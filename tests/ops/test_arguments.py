"""How the public functions report invalid arguments, by the caller's names; what they take."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_modes
from helpers.wrapper_calls import (
    BLOCK_FUNCTIONS,
    CELLS,
    FUNCTIONS,
    GATES,
    IN,
    B,
    H,
    P,
    T,
    arguments_of,
    as_keras,
    block_arguments,
    block_call,
    call,
    refused,
    sequence_arguments,
    sequence_call,
    some,
    state_name,
    wrong_type,
)

sequence_functions = pytest.mark.parametrize("name", GATES)
block_functions = pytest.mark.parametrize("name", BLOCK_FUNCTIONS)
all_functions = pytest.mark.parametrize("name", FUNCTIONS)
with_tuples = pytest.mark.parametrize("name", [n for n in FUNCTIONS if "lstm" in n])

BEFORE = {"reset_after": False}
KERAS = {**BEFORE, "gate_order": "urc"}
FACTORS = "recurrent_dropout_factors"
PROJECTED = {"w_h": [P, 4 * H], "w_p": [P, H]}


def _w_x(form, sizes):
    return f"w_x must have shape [I, {form}] = {sizes}, or None where I = {form}, got "


# Shapes are lists, of several tensors tuples of them. Of arguments that do not fit each other one
# is named, with the shape that fits the others; the shapes of all follow.
WRONG_SHAPES = [
    ("lstm", {"w_h": [4, 15]}, "w_h must have shape [P, 4H] = [4, 16], got [4, 15]"),
    ("lstm", {"w_h": [16]}, "w_h must have shape [P, 4H] = [4, 16], got [16]"),
    ("lstm", {"b": [15]}, "b must have shape [4H] = [16], got [15]"),
    ("lstm", {"x": [2, 5]}, "x must have shape [B, T, I] = [?, ?, 5], got [2, 5]"),
    ("lstm", {"x": [2, 3, 6]}, _w_x("4H", [6, 16])),
    ("lstm", {"w_x": None}, _w_x("4H", [5, 16])),
    ("lstm", {"w_p": [3, 4]}, "w_p must have shape [P, H] = [4, 4], or None where P = H, got [3,"),
    ("lstm", {"w_h": [P, 16]}, "w_p must have shape [P, H] = [3, 4], or None where P = H, got N"),
    (
        "lstm",
        {**PROJECTED, "initial_state": ([B, H], [B, H])},
        "initial_state[0] must have shape [B,",
    ),
    (
        "lstm",
        {"w_p": [0, H], "w_h": [0, 4 * H], "initial_state": ([B, 0], [B, H])},
        "w_p must have shape [P, H] with P above 0",
    ),
    (
        "lstm",
        {FACTORS: [2, 4]},
        f"{FACTORS} must have shape [4, B, P] = [4, 2, 4], got [2, 4]; tf.nn.",
    ),
    (
        "lstm",
        {FACTORS: []},
        f"{FACTORS} must have shape [4, B, P] = [4, 2, 4], got []; tf.nn.dropout(",
    ),
    ("lstm", {"peepholes": ([H], [3], [H])}, "peepholes[1] must have shape [H] = [4], got [3]"),
    ("lstm", {"initial_state": ([3, H], [B, H])}, "initial_state[0] must have shape [B, P] = [2, "),
    ("lstm", {"initial_state": ([B, H], [3, H])}, "initial_state[1] must have shape [B, H] = [2, "),
    ("gru", {"w_x": [5, 11]}, _w_x("3H", [5, 12])),
    ("gru", {"w_x": None}, _w_x("3H", [5, 12])),
    ("gru", {"w_h": [4, 11]}, "w_h must have shape [H, 3H] = [4, 12], got [4, 11]"),
    ("gru", {"b_x": [9]}, "b_x must have shape [3H] = [12], got [9]"),
    ("gru", {"b_x": []}, "b_x must have shape [3H] = [12], got []"),
    ("gru", {"b_h": [9]}, "b_h must have shape [3H] = [12], got [9]"),
    ("gru", {"x": [2, 3, 6]}, _w_x("3H", [6, 12])),
    ("gru", {"initial_state": [2, 5]}, "initial_state must have shape [B, H] = [2, 4], got [2, 5]"),
    # Transposed, as PyTorch's are: one, and all.
    (
        "gru",
        {"w_x": [12, 5]},
        "w_x must have shape [I, 3H] = [5, 12], or None where I = 3H, got [12,",
    ),
    ("gru", {"w_h": [12, 4]}, "w_h must have shape [H, 3H] = [4, 12], got [12, 4], its transpose"),
    (
        "lstm",
        {"w_x": [16, 5], "w_h": [16, 4]},
        "w_x must have shape [I, 4H] = [5, 16], got [16, 5], its",
    ),
    # With the reset before the GEMM.
    ("gru", {**BEFORE, "w_x": [5, 11]}, _w_x("3H", [5, 12]) + "[5, 11]"),
    ("gru", {**BEFORE, "w_x": [12, 5]}, _w_x("3H", [5, 12]) + "[12, 5], its"),
    ("gru", {**BEFORE, "w_h": [4, 11]}, "w_h must have shape [H, 3H] = [4, 12], got [4, 11]"),
    ("gru", {**BEFORE, "b_x": []}, "b_x must have shape [3H] = [12], got []"),
    ("gru", {**BEFORE, "b_h": [9]}, "b_h must have shape [3H] = [12], got [9]"),
    ("gru", {**BEFORE, "x": [2, 3, 6]}, _w_x("3H", [6, 12]) + "[5, 12]"),
    (
        "gru",
        {**BEFORE, "initial_state": [2, 5]},
        "initial_state must have shape [B, H] = [2, 4], got",
    ),
    ("gru", {**KERAS, "x": [2, 3, 4], "w_x": None}, _w_x("3H", [4, 12])),
    ("gru", {**KERAS, "recurrent_dropout_factors": [4, B, H]}, "recurrent_dropout_factors must "),
    ("simple_rnn", {"w_h": [4, 3]}, "w_h must have shape [H, H] = [4, 4], got [4, 3]"),
    ("simple_rnn", {"w_x": None}, _w_x("H", [5, 4])),
    ("simple_rnn", {"b": [3]}, "b must have shape [H] = [4], got [3]"),
    ("simple_rnn", {"x": [2, 3, 6]}, _w_x("H", [6, 4])),
]
for _name in (*BLOCK_FUNCTIONS, *CELLS):
    _x = [B, 6] if _name in CELLS else [T, B, 6]
    _weights, _bias, _form = (
        ("w_ru", "b_c", f"[H] = [{H}]") if "gru" in _name else ("w", "b", f"[4H] = [{4 * H}]")
    )
    WRONG_SHAPES += [
        (_name, {"x": _x}, f"{_weights} must have shape [I+H, "),
        (_name, {_bias: [3]}, f"{_bias} must have shape {_form}, got [3]"),
        (_name, {"x": []}, "x must have "),
    ]


def _made(value):
    if isinstance(value, tuple):
        return tuple(map(_made, value))
    return some(*value) if isinstance(value, list) else value


@pytest.mark.parametrize("name,changed,message", WRONG_SHAPES)
def test_a_wrong_shape_is_put_on_its_argument(tfb, name, changed, message):
    with refused(f"{name}: {message}"):
        call(tfb, name, **{key: _made(value) for key, value in changed.items()})


ASKED = re.compile(r"(\w+)(?:\[(\d)\])? must have shape [^=;]*= \[([\d?, ]*)\]")
# Those with no shape to follow.
OBEYED = [row[:2] for row in WRONG_SHAPES if "with P above 0" not in row[2]]


@pytest.mark.parametrize("name,changed", OBEYED)
def test_obeying_leads_to_a_call_that_works(tfb, name, changed):
    """To each argument that is named the shape that is asked for; x, if it is, keeps what fits."""
    given = {key: _made(value) for key, value in changed.items()}
    for _ in range(3):
        try:
            call(tfb, name, **given)
            return
        except tf.errors.InvalidArgumentError as error:
            argument, part, sizes = ASKED.search(error.message).groups()
        shape = [2 if size == "?" else int(size) for size in sizes.split(", ")]
        if part is None:
            given[argument] = some(*shape)
        else:
            parts = list(given[argument])
            parts[int(part)] = some(*shape)
            given[argument] = tuple(parts)
    raise AssertionError(f"obeyed, {name} was refused again: {given}")


def test_the_shapes_of_all_arguments_follow(tfb):
    with refused("= [2, 4], got [2, 5]; given are x [2, 3, 5], w_x [5, 16], ") as error:
        call(tfb, "lstm", initial_state=(some(B, H), some(B, 5)))
    assert "initial_state[1] [2, 5]" in str(error.value)


def test_a_wrong_shape_in_a_graph_is_a_value_error_of_the_same_words(tfb):
    run = tf.function(lambda w_h: sequence_call(tfb, "lstm", w_h=w_h))
    with pytest.raises(ValueError, match=re.escape("lstm: w_h must have shape [P, 4H] = [4, 16]")):
        run(some(4, 15))


@pytest.mark.parametrize("name", ["gru", "GRUAfterSequence"])
def test_a_size_is_not_asked_of_the_argument_that_brings_it(tfb, name):
    """Of an x whose width is unknown: w_x has its own rows right, whatever they are."""

    def run(x):
        weights = {"w_x": some(12, IN), "w_h": some(H, 12), "b_x": some(12), "b_h": some(12)}
        if name == "gru":
            return tfb.gru(x, **weights)
        left_out = {"recurrent_dropout": tf.zeros([0])}
        left_out |= {key: tf.zeros([0], tf.bool) for key in ("mask", "resets", "zoneout_h")}
        state = {"h_prev": some(B, H), "sequence_lengths": tf.zeros([0], tf.int32)}
        return tfb.raw_ops.GRUAfterSequence(x=x, **weights, **state, **left_out)

    function = tf.function(run, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(
        ValueError, match=re.escape(f"{name}: w_x must have shape [I, 3H] = [?, 12]")
    ):
        function(some(B, T, IN))


def test_an_argument_of_other_libraries(tfb):
    """Says what stands for it; of an unknown one, what there is."""
    for name, factors in (("lstm", "4, B, P"), ("gru", "3, B, H")):
        with wrong_type(f"tf.nn.dropout(tf.ones([{factors}]), rate)"):
            sequence_call(tfb, name, recurrent_dropout=0.2)
    with wrong_type(
        "block_gru: got an unexpected keyword argument 'hx'; its arguments are x, w_ru,"
    ):
        block_call(tfb, "block_gru", hx=None)


def test_time_major_is_in_the_shapes_that_are_asked_for(tfb):
    with refused("lstm: mask must have shape [T, B] = [2, 3] or None, got [3, 2]"):
        sequence_call(tfb, "lstm", time_major=True, mask=tf.ones([3, 2], tf.bool))


@with_tuples
@pytest.mark.parametrize(
    "argument,parts,count", [("state", "h, cs", 2), ("peepholes", "wci, wcf, wco", 3)]
)
def test_tuples(tfb, name, argument, parts, count):
    sizes = (B, H) if argument == "state" else (H,)
    argument = state_name(name) if argument == "state" else argument
    shapes = {"lstm": "[B, P], [B, H]"}.get(name, "[B, H], [B, H]")
    shapes = shapes if sizes == (B, H) else "[H], [H], [H]"
    wanted = f"{name}: {argument} must be ({parts}), of shapes {shapes}, got"

    def given(value):
        return call(tfb, name, **{argument: value})

    for wrong in (0, 1, count + 1):
        with wrong_type(f"{wanted} {wrong} of them"):
            given([some(*sizes)] * wrong)
    for value in (0.0, object()):
        with wrong_type(f"{wanted} a value of type {type(value).__name__}"):
            given(value)
    # As many rows as there should be tensors, too.
    for value in (tf.constant(0.0), some(*sizes), some(count, *sizes[1:])):
        with wrong_type(f"{wanted} one tensor of shape {value.shape.as_list()}"):
            given(value)
    with wrong_type(f"{wanted} a value of type SymbolicTensor"):
        tf.function(given)(some(count, *sizes))
    with wrong_type(f"{name}: {argument}[0] must be a tensor, got None"):
        given((None,) * count)
    if argument == "state":
        with wrong_type(f"{wanted} None"):
            given(None)


@pytest.mark.parametrize("name", ["gru", "simple_rnn"])
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_a_tuple_is_no_state(tfb, name, mode):
    call = run_modes.in_mode(mode, lambda *states: sequence_call(tfb, name, initial_state=states))
    error = tf.errors.InvalidArgumentError if mode == "eager" else ValueError
    for count in (1, 2):
        wanted = f"{name}: initial_state must have shape [B, H] = [2, 4], got [{count}, 2, 4]"
        with pytest.raises(error, match=re.escape(wanted)):
            call(*[some(B, H)] * count)
    with wrong_type(f"{name}: initial_state must be a tensor, got a value of type tuple"):
        sequence_call(tfb, name, initial_state=(None,))


def test_what_a_projection_makes_of_the_shapes(tfb):
    outputs, state = sequence_call(tfb, "lstm", **{k: some(*v) for k, v in PROJECTED.items()})
    assert outputs.shape == (B, T, P) and state.cs.shape == (B, H)


# Types.


@all_functions
def test_tensors_that_do_not_fit(tfb, name):
    arguments = arguments_of(name)
    _, first, *_, bias = (key for key in arguments if key != state_name(name))
    with wrong_type(f"{name}: x must be a dense tensor, got a RaggedTensor; pass x.to_tensor()"):
        call(tfb, name, x=tf.RaggedTensor.from_tensor(arguments["x"]))
    with wrong_type(f"{name}: {first} must be a dense tensor, got a SparseTensor"):
        call(tfb, name, **{first: tf.sparse.from_dense(arguments[first])})
    with wrong_type(f"{name}: {bias} must be of type float32, as {first} is, got float64"):
        call(tfb, name, **{bias: tf.cast(arguments[bias], tf.float64)})
    if name in GATES:
        with wrong_type(f"{name}: x must be of type float32, as w_x is, got float64"):
            call(tfb, name, x=tf.cast(arguments["x"], tf.float64))
        with wrong_type(f"{name}: w_x must be of type half, bfloat16, float32, float64, got int32"):
            call(tfb, name, **{k: tf.cast(v, tf.int32) for k, v in arguments.items()})


@sequence_functions
def test_numbers_and_arrays_take_the_type_of_the_tensors(tfb, name):
    options = {"reset_after": False} if name == "gru" else {}
    want, _ = sequence_call(tfb, name, **options)
    arrays = {k: v.numpy().astype(np.float64) for k, v in sequence_arguments(name).items()}
    for argument, array in arrays.items():
        for given in (array, array.astype(np.float32).tolist()):
            got, _ = sequence_call(tfb, name, **{argument: given}, **options)
            np.testing.assert_array_equal(got, want, argument)
    del arrays["w_h"]
    graph = tf.function(lambda: sequence_call(tfb, name, **arrays, **options)[0])
    np.testing.assert_array_equal(graph(), want)


@sequence_functions
@pytest.mark.parametrize("dtype", [tf.half, tf.float32])
def test_arrays_take_the_type_of_the_only_tensor(tfb, name, dtype):
    tensors = _all_arguments(name, dtype)
    arrays = tf.nest.map_structure(lambda tensor: tensor.numpy().astype(np.float64), tensors)
    want, _ = sequence_call(tfb, name, **tensors)
    for argument, tensor in tensors.items():
        for only in (tensor, tf.nest.map_structure(tf.Variable, tensor), as_keras(tensor)):
            got, _ = sequence_call(tfb, name, **{**arrays, argument: only})
            np.testing.assert_array_equal(got, want, argument)


def test_with_arrays_alone_the_weights_say_the_type(tfb):
    weights = {k: v.numpy() for k, v in sequence_arguments("lstm").items() if k != "x"}
    assert tfb.lstm(np.ones([B, T, IN]), **weights)[0].dtype == tf.float32
    weights = {k: v.astype(np.float64) for k, v in weights.items()}
    assert tfb.lstm(np.ones([B, T, IN]).tolist(), **weights)[0].dtype == tf.float64


@block_functions
def test_whatever_x_of_a_block_is_given_as(tfb, name):
    x = some(T, B, IN)
    want = call(tfb, name, x=x)
    variable = tf.Variable(x, shape=tf.TensorShape(None))
    given = [variable, x.numpy().astype(np.float64), x.numpy().tolist()]

    def outputs():
        return [call(tfb, name, x=one) for one in given]

    for got in (*outputs(), *tf.function(outputs)()):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["block_lstm", "block_lstm_v2", "lstm_block_cell"])
def test_weights_of_a_block_without_peepholes_take_the_type_of_x(tfb, name):
    weights = {k: v.numpy().astype(np.float64) for k, v in arguments_of(name).items() if k in "wb"}
    np.testing.assert_array_equal(call(tfb, name, **weights), call(tfb, name))


# None.


@all_functions
def test_none_is_no_tensor(tfb, name):
    optional = {"w_x", "b_h", "initial_state", *(["state"] if "lstm" in name else ())}
    for argument in arguments_of(name).keys() - optional:
        for mode in ("eager", "graph"):
            run = run_modes.in_mode(mode, lambda key=argument: call(tfb, name, **{key: None}))
            with wrong_type(f"{name}: {argument} must be a tensor, got None"):
                run()


@sequence_functions
def test_a_list_of_none_is_no_tensor(tfb, name):
    with wrong_type(f"{name}: w_h must be a tensor, got None"):
        sequence_call(tfb, name, w_x=None, w_h=None)
    optional = {"lstm": ("zoneout_h", "zoneout_c"), "gru": ("zoneout_h",)}.get(name, ())
    for argument in ("mask", "lengths", "recurrent_dropout_factors", *optional):
        with wrong_type(f"{name}: {argument} must be a tensor, got a value of type list"):
            sequence_call(tfb, name, **{argument: [None, None]})
    unequal = "Can't convert non-rectangular Python sequence"
    for argument in ("mask", "resets"):
        with wrong_type(
            f"{name}: {argument} must be a tensor, got a value of type list: {unequal}"
        ):
            sequence_call(tfb, name, **{argument: [[True], [True, False]]})


@sequence_functions
def test_a_symbolic_tensor_of_keras_gets_the_help_of_keras(tfb, name):
    """Which says to put the call into a layer."""
    symbolic = keras.KerasTensor((B, T, IN))
    arguments = ["x", "w_h", "initial_state", "mask"]
    for argument in arguments + (["peepholes"] if name == "lstm" else []):
        with pytest.raises(ValueError, match="You can only use it as input to a Keras layer"):
            sequence_call(tfb, name, **{argument: symbolic})


@pytest.mark.parametrize(
    "value", ["rcu", np.array(["urc", "ruc"]), tf.zeros([], tf.int8), None], ids=str
)
def test_what_is_no_choice(tfb, value):
    with pytest.raises(ValueError, match="gru: gate_order must be .*, got "):
        sequence_call(tfb, "gru", gate_order=value)
    with pytest.raises(ValueError, match="simple_rnn: activation must be .*, got "):
        sequence_call(tfb, "simple_rnn", activation=value)


@pytest.mark.parametrize("value", ["words", b"bytes", 1j], ids=str)
@sequence_functions
def test_what_is_no_number_is_named(tfb, name, value):
    with wrong_type(f"{name}: w_h must be"):
        sequence_call(tfb, name, w_h=value)
    cell = {"state": tf.ones([2, 5]), "w_ru": tf.ones([9, 10]), "w_c": tf.ones([9, 5])}
    biases = {"b_ru": tf.ones([10]), "b_c": tf.ones([5])}
    for argument in ("x", *cell):
        given = {"x": tf.ones([2, 4]), **cell, **biases, argument: value}
        with wrong_type(f"gru_block_cell: {argument} must be a tensor of type float32, got a val"):
            tfb.gru_block_cell(**given)


@pytest.mark.parametrize(
    "name,option,kind",
    [
        ("lstm", "time_major", "bool"),
        ("lstm", "go_backwards", "bool"),
        ("lstm", "forget_bias", "float"),
        ("gru", "reset_after", "bool"),
        ("gru", "time_major", "bool"),
        ("gru", "go_backwards", "bool"),
        ("simple_rnn", "time_major", "bool"),
        ("simple_rnn", "go_backwards", "bool"),
        ("block_lstm", "forget_bias", "float"),
        ("lstm_block_cell", "forget_bias", "float"),
    ],
)
def test_none_is_no_option(tfb, name, option, kind):
    """To an op it is its own default."""

    def call():
        if name in GATES:
            return sequence_call(
                tfb, name, x=some(B, B, IN), **{option: None}
            )  # either order would do
        return block_call(tfb, name, **{option: None})

    message = f"{name}: {option} must be a {kind}, got None"
    with wrong_type(message):
        call()
    with wrong_type(message):
        tf.function(call)()


@pytest.mark.parametrize("name", ["lstm", "block_lstm", "lstm_block_cell"])
@pytest.mark.parametrize("option", ["forget_bias", "cell_clip"])
def test_an_option_is_a_number_of_python(tfb, name, option):
    for value in ("1", tf.constant(1.0), [1.0]):
        kind = type(value).__name__
        with wrong_type(f"{name}: {option} must be a float, got a value of type {kind}"):
            call(tfb, name, **{option: value})
    for value in (1, np.float32(1), np.float64(1)):
        call(tfb, name, **{option: value})


@sequence_functions
def test_numbers_are_truth_values(tfb, name):
    x = some(B, T, IN)
    for value in (1, np.True_, np.int64(1), 0, np.False_):
        for option in ("time_major", "go_backwards"):
            got, _ = sequence_call(tfb, name, x=x, **{option: value})
            want, _ = sequence_call(tfb, name, x=x, **{option: bool(value)})
            np.testing.assert_array_equal(got, want)
    for value in ("yes", tf.constant(True)):
        kind = type(value).__name__
        with wrong_type(f"{name}: go_backwards must be a bool, got a value of type {kind}"):
            sequence_call(tfb, name, x=x, go_backwards=value)


def test_none_is_no_clip(tfb):
    large = tf.fill([B, H], 9.0)

    def states(**clip):
        _, state = sequence_call(tfb, "lstm", initial_state=(large, large), forget_bias=9.0, **clip)
        yield state.cs
        for name in ("lstm_block_cell", "block_lstm", "block_lstm_v2"):
            state = {state_name(name): (large, large)}
            bias = {} if name == "block_lstm_v2" else {"forget_bias": 1.0}
            yield block_call(tfb, name, **state, **bias, **clip).cs

    for none, zero, one in zip(
        states(cell_clip=None), states(cell_clip=0.0), states(cell_clip=1.0), strict=True
    ):
        np.testing.assert_array_equal(none, zero)
        assert tf.reduce_max(none) > 3.0 and tf.reduce_max(one) == 1.0


# Variables.


def _all_arguments(name, dtype=tf.float32):
    """Every tensor that a function takes."""
    arguments = {
        **sequence_arguments(name),
        "initial_state": some(B, H),
        "recurrent_dropout_factors": some(GATES[name], B, H),
    }
    if name == "lstm":
        arguments["initial_state"] = (some(B, H), some(B, H))
        arguments |= {"peepholes": (some(H), some(H), some(H)), "w_p": some(H, H)}
    return tf.nest.map_structure(lambda tensor: tf.cast(tensor, dtype), arguments)


@pytest.mark.parametrize("name,options", [*((name, {}) for name in FUNCTIONS), ("gru", BEFORE)])
def test_every_argument_may_be_a_variable_of_keras(tfb, name, options):
    if name in GATES:
        arguments = _all_arguments(name)
        arguments |= {"mask": tf.ones([B, T], tf.int32), "lengths": tf.constant([3, 1])}
    else:
        arguments = block_arguments(name)
        arguments |= {} if "gru" in name else {"peepholes": (some(H), some(H), some(H))}
        arguments |= {} if name in CELLS else {"seq_len_max": tf.constant(2)}
    want = call(tfb, name, **arguments, **options)
    alone = [{**arguments, key: as_keras(value)} for key, value in arguments.items()]
    for given in (*alone, as_keras(arguments)):
        np.testing.assert_array_equal(call(tfb, name, **given, **options), want)
    graph = tf.function(lambda: call(tfb, name, **given, **options))
    np.testing.assert_array_equal(graph(), want)


def test_peepholes_of_keras_get_their_gradient(tfb):
    peepholes = as_keras((some(H), some(H), some(H)))
    with tf.GradientTape() as tape:
        outputs, _ = sequence_call(tfb, "lstm", peepholes=peepholes)
    for gradient in tape.gradient(outputs, [each.value for each in peepholes]):
        assert tf.reduce_any(gradient != 0)


# Biases that a sum would broadcast.


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("shapes", [([12], [1]), ([12], []), ([1], [12]), ([1], [1])])
def test_biases_do_not_broadcast(tfb, reset_after, shapes):
    b_x, b_h = (some(*shape) for shape in shapes)
    with refused("gru: b_"):
        sequence_call(tfb, "gru", b_x=b_x, b_h=b_h, reset_after=reset_after)
    unknown = tf.function(
        lambda b_x, b_h: sequence_call(tfb, "gru", b_x=b_x, b_h=b_h, reset_after=reset_after),
        input_signature=[tf.TensorSpec(None)] * 2,
    )
    unknown(some(12), some(12))
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(b_x, b_h)


# Callers pass None for an input that is left out.


@sequence_functions
@pytest.mark.parametrize(
    "argument,dtype",
    [
        ("w_x", tf.float32),
        ("mask", tf.bool),
        ("recurrent_dropout_factors", tf.float32),
        ("lengths", tf.int64),
    ],
)
def test_an_empty_argument_is_not_left_out(tfb, name, argument, dtype):
    x = some(B, T, GATES[name] * H) if argument == "w_x" else some(B, T, IN)
    with refused(f"{name}: {argument} must have"):
        sequence_call(tfb, name, x=x, **{argument: tf.zeros([0], dtype)})
    unknown = tf.function(
        lambda given: sequence_call(tfb, name, x=x, **{argument: given}),
        input_signature=[tf.TensorSpec(None, dtype)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(tf.zeros([0], dtype))


@pytest.mark.parametrize("shape", [[None], None])
def test_lengths_whose_number_shows_at_run_time(tfb, shape):
    signature = [tf.TensorSpec([None, T, IN]), tf.TensorSpec(shape, tf.int32)]
    function = tf.function(
        lambda x, lengths: sequence_call(tfb, "lstm", x=x, lengths=lengths)[0],
        input_signature=signature,
    )
    x, lengths = some(B, T, IN), tf.constant([3, 1])
    want, _ = sequence_call(tfb, "lstm", x=x, lengths=lengths)
    np.testing.assert_array_equal(function(x, lengths), want)
    assert function(x[:0], lengths[:0]).shape == (0, T, H)
    for wrong in (lengths[:0], lengths[:1]):
        with refused("lstm: lengths must have shape [B]; B and the size given are"):
            function(x, wrong)


def test_an_empty_batch_has_no_lengths(tfb):
    outputs, _ = sequence_call(tfb, "gru", x=some(0, T, IN), lengths=tf.zeros([0], tf.int32))
    assert outputs.shape == (0, T, H)


@sequence_functions
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_a_mask_is_of_bool_or_of_integers(tfb, name, mode):
    mask = tf.constant([[1, 0, 1], [1, 1, 0]])
    call = run_modes.in_mode(mode, lambda mask: sequence_call(tfb, name, mask=mask)[0])
    np.testing.assert_array_equal(call(mask), call(tf.cast(mask, tf.bool)))
    with wrong_type(f"{name}: mask must be of bool or of an integer type, got fl"):
        call(tf.cast(mask, tf.float32))


@pytest.mark.parametrize("name", [*GATES, *BLOCK_FUNCTIONS])
def test_lengths_are_integers(tfb, name):
    """Of any integer type; one beyond int64 is reported as it is."""
    argument = "lengths" if name in GATES else "seq_len_max"

    def given(value, dtype=None):
        value = np.array([value, 1] if name in GATES else value, dtype)
        return [call(tfb, name, **{argument: each}) for each in (value, tf.constant(value))]

    for wrong in (np.float32(2.7), np.bool_(True), np.float64(2)):
        with wrong_type(f"{name}: {argument} must be of an integer type, got {wrong.dtype.name}"):
            given(wrong, wrong.dtype)
    for got in (*given(2, np.int16), *given(2, np.uint8), *given(2, np.int64)):
        np.testing.assert_array_equal(got, given(2, np.int32)[0])
    with refused(f"{name}: {argument} must be in 0..T, got {2**63 + 1}"):
        given(2**63 + 1, np.uint64)


@pytest.mark.parametrize("argument", ["zoneout_h", "zoneout_c"])
@pytest.mark.parametrize("mode", run_modes.MODES)
def test_zoneout(tfb, argument, mode):
    """A rate, or draws of the sequence's size; in every mode a rate is a number of Python."""

    def call(given, **options):
        run = run_modes.in_mode(
            mode, lambda x: sequence_call(tfb, "lstm", x=x, **{argument: given}, **options)
        )
        return run(some(B, T, IN))

    for rate in (-0.5, 1.5, float("nan"), float("inf")):
        message = f"lstm: {argument} must be a rate in 0..1, got {rate}"
        with pytest.raises(ValueError, match=re.escape(message)):
            call(rate)
    dims = "[B, T, P]" if argument == "zoneout_h" else "[B, T, H]"
    error = tf.errors.InvalidArgumentError if mode == "eager" else ValueError
    for given, message in (
        (tf.zeros([B, H], tf.bool), f"must have shape {dims}"),
        (tf.zeros([T, B, H], tf.bool), f"must have shape {dims}"),
        (tf.zeros([B, T, H + 1], tf.bool), f"must have shape {dims}"),
    ):
        with pytest.raises(error, match=re.escape(f"lstm: {argument} {message}")):
            call(given)
    with wrong_type(
        f"lstm: {argument} must be a rate, a number, or draws of type bool, got float32"
    ):
        call(tf.zeros([B, T, H]))
    call(tf.zeros([B, T, H], tf.bool))
    call(np.zeros([B, T, H], bool))
    call(1)


# The state of a block.


@pytest.mark.parametrize("name", ["block_lstm", "block_lstm_v2", "lstm_block_cell"])
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


@pytest.mark.parametrize("name", ["block_lstm", "block_lstm_v2", "lstm_block_cell"])
def test_calls_in_the_order_of_tensorflow_are_refused(tfb, name):
    """The state was (cs, h) and came after x; a step takes `state`, a sequence `initial_state`."""
    given = block_arguments(name)
    state = given.pop(state_name(name))
    with pytest.raises(TypeError, match="positional"):
        getattr(tfb, name)(given["x"], state, given["w"], given["b"])
    other = "initial_state" if name in CELLS else "state"
    with pytest.raises(TypeError, match="state"):
        getattr(tfb, name)(**given, **{other: state})


@block_functions
def test_without_a_state_a_block_starts_from_zeros(tfb, name):
    given = block_arguments(name)
    zeros = tf.nest.map_structure(tf.zeros_like, given.pop("initial_state"))
    want = getattr(tfb, name)(**given, initial_state=zeros)
    for graph in (False, True):
        function = tf.function(getattr(tfb, name)) if graph else getattr(tfb, name)
        np.testing.assert_array_equal(function(**given).h, want.h)
