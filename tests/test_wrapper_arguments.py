"""What the public functions over sequences say of arguments that do not fit, in their own names."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

B, T, IN, H, P = 2, 3, 5, 4, 3
GATES = {"lstm": 4, "gru": 3, "simple_rnn": 1}
all_functions = pytest.mark.parametrize("name", GATES)


def _some(*shape):
    return tf.fill(shape, 0.1)


def _arguments(name):
    width = GATES[name] * H
    biases = ("b_x", "b_h") if name == "gru" else ("b",)
    return {
        "x": _some(B, T, IN),
        "w_x": _some(IN, width),
        "w_h": _some(H, width),
        **{bias: _some(width) for bias in biases},
    }


def _call(tfb, name, **changed):
    return getattr(tfb, name)(**{**_arguments(name), **changed})


def _refused(message):
    return pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message))


WRONG_SHAPES = [
    ("lstm", "w_h", [4, 15], "must have shape [P, 4H] = [4, ?], got shape [4, 15]"),
    ("lstm", "w_x", [6, 16], "must have shape [I, 4H] = [5, 16], got shape [6, 16]"),
    ("lstm", "b", [15], "must have shape [4H] = [16], got shape [15]"),
    ("lstm", "x", [2, 5], "must have 3 dims, got shape [2, 5]"),
    ("lstm", "w_p", [3, 4], "must have shape [P, H] = [4, 4], got shape [3, 4]"),
    ("lstm", "recurrent_dropout", [2, 4], "must have 3 dims, got shape [2, 4]"),
    ("gru", "w_x", [6, 12], "must have shape [I, 3H] = [5, 12], got shape [6, 12]"),
    ("gru", "w_x", [5, 11], "must have shape [I, 3H] = [5, 12], got shape [5, 11]"),
    ("gru", "w_h", [4, 11], "must have shape [H, 3H] = [4, 12], got shape [4, 11]"),
    ("gru", "b_x", [9], "must have shape [3H] = [12], got shape [9]"),
    ("gru", "b_x", [], "must have 1 dim, [3H], got shape []"),
    ("gru", "b_h", [9], "must have shape [3H] = [12], got shape [9]"),
    ("gru", "initial_state", [2, 5], "must have shape [B, H] = [2, 4], got shape [2, 5]"),
    ("simple_rnn", "w_h", [4, 3], "must have shape [H, H] = [4, 4], got shape [4, 3]"),
    ("simple_rnn", "w_x", [6, 4], "must have shape [I, H] = [5, 4], got shape [6, 4]"),
    ("simple_rnn", "b", [3], "must have shape [H] = [4], got shape [3]"),
]


@pytest.mark.parametrize("name,argument,shape,message", WRONG_SHAPES)
def test_a_wrong_shape_is_put_on_its_argument(tfb, name, argument, shape, message):
    for options in ({"reset_after": False}, {"reset_after": True}) if name == "gru" else ({},):
        with _refused(f"{name}: {argument} {message}"):
            _call(tfb, name, **{argument: _some(*shape)}, **options)


def test_a_wrong_shape_in_a_graph_is_a_value_error_of_the_same_words(tfb):
    run = tf.function(lambda w_h: _call(tfb, "lstm", w_h=w_h))
    with pytest.raises(ValueError, match=re.escape("lstm: w_h must have shape [P, 4H] = [4, ?]")):
        run(_some(4, 15))


def test_without_w_x_the_width_of_x_is_that_of_the_gates(tfb):
    with _refused("gru: x must have shape [B, T, 3H] = [2, 3, 12], got shape [2, 3, 5]"):
        _call(tfb, "gru", w_x=None)


def test_time_major_is_in_the_shapes_that_are_asked_for(tfb):
    with _refused("lstm: mask must have shape [T, B] = [2, 3], got shape [3, 2]"):
        _call(tfb, "lstm", time_major=True, mask=tf.ones([3, 2], tf.bool))


@pytest.mark.parametrize(
    "changed,message",
    [
        ({"peepholes": ()}, "peepholes must be (wci, wcf, wco), got 0 of them"),
        ({"peepholes": [(H,), (H,)]}, "peepholes must be (wci, wcf, wco), got 2 of them"),
        (
            {"peepholes": [(H,), (3,), (H,)]},
            "peepholes[1] must have shape [H] = [4], got shape [3]",
        ),
        ({"initial_state": [(B, H)]}, "initial_state must be (h, cs), got 1 of them"),
        ({"initial_state": [(B, H)] * 3}, "initial_state must be (h, cs), got 3 of them"),
        ({"initial_state": [(B, H), (B, 5)]}, "initial_state[1] must have shape [B, H] = [2, 4]"),
    ],
)
def test_parts_of_tuples(tfb, changed, message):
    changed = {key: tuple(_some(*shape) for shape in shapes) for key, shapes in changed.items()}
    with _refused(f"lstm: {message}"):
        _call(tfb, "lstm", **changed)


def test_one_tensor_is_no_state_of_an_lstm(tfb):
    with _refused("lstm: initial_state[0] must have 2 dims, [B, P], got shape [4]"):
        _call(tfb, "lstm", initial_state=_some(B, H))


@pytest.mark.parametrize("wrong", [0.0, tf.constant(0.0), object()])
def test_what_is_no_tuple(tfb, wrong):
    kind = type(wrong).__name__
    with _refused(f"lstm: initial_state must be (h, cs), got a value of type {kind}"):
        _call(tfb, "lstm", initial_state=wrong)
    with _refused(f"lstm: peepholes must be (wci, wcf, wco), got a value of type {kind}"):
        _call(tfb, "lstm", peepholes=wrong)


def test_a_tensor_of_a_graph_is_no_tuple(tfb):
    message = "lstm: initial_state must be (h, cs), got a value of type SymbolicTensor"
    with pytest.raises(ValueError, match=re.escape(message)):
        tf.function(lambda states: _call(tfb, "lstm", initial_state=states))(_some(2, B, H))


@pytest.mark.parametrize("name", ["gru", "simple_rnn"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_tuple_is_no_state(tfb, name, mode):
    run = tf.function if mode == "graph" else (lambda function: function)
    call = run(lambda *states: _call(tfb, name, initial_state=states))
    error = tf.errors.InvalidArgumentError if mode == "eager" else ValueError
    for count in (1, 2):
        wanted = f"{name}: initial_state must have 2 dims, [B, H], got shape [{count}, 2, 4]"
        with pytest.raises(error, match=re.escape(wanted)):
            call(*[_some(B, H)] * count)
    with _refused(f"{name}: initial_state must be a tensor, got a value of type tuple"):
        _call(tfb, name, initial_state=(None,))


def test_what_a_projection_makes_of_the_shapes(tfb):
    weights = {"w_h": _some(P, 4 * H), "w_p": _some(P, H)}
    outputs, state = _call(tfb, "lstm", **weights)
    assert outputs.shape == (B, T, P) and state.cs.shape == (B, H)
    with _refused("lstm: w_p must have shape [P, H] = [3, 4], or be None where P = H, got None"):
        _call(tfb, "lstm", w_h=weights["w_h"])
    with _refused("lstm: initial_state[0] must have shape [B, P] = [2, 3], got shape [2, 4]"):
        _call(tfb, "lstm", **weights, initial_state=(_some(B, H), _some(B, H)))


# Types.


@all_functions
def test_a_tensor_of_another_type_is_named(tfb, name):
    with _refused(f"{name}: x must be of type float32, as w_h is, got float64"):
        _call(tfb, name, x=tf.ones([B, T, IN], tf.float64))
    with _refused(f"{name}: w_h must be of type half, bfloat16, float32, float64, got int32"):
        _call(tfb, name, **{k: tf.cast(v, tf.int32) for k, v in _arguments(name).items()})


@all_functions
def test_numbers_and_arrays_take_the_type_of_the_tensors(tfb, name):
    options = {"reset_after": False} if name == "gru" else {}
    want, _ = _call(tfb, name, **options)
    arrays = {k: v.numpy().astype(np.float64) for k, v in _arguments(name).items()}
    for argument, array in arrays.items():
        for given in (array, array.astype(np.float32).tolist()):
            got, _ = _call(tfb, name, **{argument: given}, **options)
            np.testing.assert_array_equal(got, want, argument)
    del arrays["w_h"]
    graph = tf.function(lambda: _call(tfb, name, **arrays, **options)[0])
    np.testing.assert_array_equal(graph(), want)


@all_functions
@pytest.mark.parametrize("dtype", [tf.half, tf.float32])
def test_arrays_take_the_type_of_the_only_tensor(tfb, name, dtype):
    tensors = _all_arguments(name, dtype)
    arrays = tf.nest.map_structure(lambda tensor: tensor.numpy().astype(np.float64), tensors)
    want, _ = _call(tfb, name, **tensors)
    for argument, tensor in tensors.items():
        for only in (tensor, tf.nest.map_structure(tf.Variable, tensor), _as_keras(tensor)):
            got, _ = _call(tfb, name, **{**arrays, argument: only})
            np.testing.assert_array_equal(got, want, argument)


def test_with_arrays_alone_the_weights_say_the_type(tfb):
    weights = {k: v.numpy() for k, v in _arguments("lstm").items() if k != "x"}
    assert tfb.lstm(np.ones([B, T, IN]), **weights)[0].dtype == tf.float32
    weights = {k: v.astype(np.float64) for k, v in weights.items()}
    assert tfb.lstm(np.ones([B, T, IN]).tolist(), **weights)[0].dtype == tf.float64


def test_tensors_that_are_not_dense(tfb):
    ragged = tf.RaggedTensor.from_tensor(_some(B, T, IN), lengths=[3, 1])
    with _refused("x must be a dense tensor, got a RaggedTensor; pass its to_tensor(), with seq"):
        _call(tfb, "gru", x=ragged)
    outputs, _ = _call(tfb, "gru", x=ragged.to_tensor(), sequence_lengths=ragged.row_lengths())
    assert outputs.shape == (B, T, H)
    with _refused("gru: w_x must be a dense tensor, got a SparseTensor"):
        _call(tfb, "gru", w_x=tf.sparse.from_dense(_some(IN, 3 * H)))


# None.


@all_functions
def test_none_is_no_tensor(tfb, name):
    for argument in _arguments(name):
        if argument not in ("w_x", "b_h"):
            with _refused(f"{name}: {argument} must be a tensor, got None"):
                _call(tfb, name, **{argument: None})
            graph = tf.function(lambda argument=argument: _call(tfb, name, **{argument: None}))
            with pytest.raises(ValueError, match=f"{name}: {argument} must be a tensor, got None"):
                graph()
    with _refused(f"{name}: w_h must be a tensor, got None"):
        _call(tfb, name, w_x=None, w_h=None)
    for argument in ("mask", "sequence_lengths", "recurrent_dropout"):
        with _refused(f"{name}: {argument} must be a tensor, got a value of type list"):
            _call(tfb, name, **{argument: [None, None]})


@pytest.mark.parametrize("argument,count", [("initial_state", 2), ("peepholes", 3)])
def test_none_is_no_part_of_a_tuple(tfb, argument, count):
    with _refused(f"lstm: {argument}[0] must be a tensor, got None"):
        _call(tfb, "lstm", **{argument: (None,) * count})


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
            return _call(tfb, name, x=_some(B, B, IN), **{option: None})  # either order would do
        return _block_call(tfb, name, **{option: None})

    message = f"{name}: {option} must be a {kind}, got None"
    with _refused(message):
        call()
    with pytest.raises(ValueError, match=message):
        tf.function(call)()


def test_none_is_no_clip(tfb):
    large = tf.fill([B, H], 9.0)

    def states(**clip):
        _, state = _call(tfb, "lstm", initial_state=(large, large), forget_bias=9.0, **clip)
        yield state.cs
        for name in ("lstm_block_cell", "block_lstm", "block_lstm_v2"):
            yield _block_call(tfb, name, state=(large, large), **clip).cs

    for none, zero, one in zip(
        states(cell_clip=None), states(cell_clip=0.0), states(cell_clip=1.0), strict=True
    ):
        np.testing.assert_array_equal(none, zero)
        assert tf.reduce_max(none) > 3.0 and tf.reduce_max(one) == 1.0


# Keras' variables.


def _all_arguments(name, dtype=tf.float32):
    """Every tensor that a function takes."""
    arguments = {
        **_arguments(name),
        "initial_state": _some(B, H),
        "recurrent_dropout": _some(GATES[name], B, H),
    }
    if name == "lstm":
        arguments["initial_state"] = (_some(B, H), _some(B, H))
        arguments |= {"peepholes": (_some(H), _some(H), _some(H)), "w_p": _some(H, H)}
    return tf.nest.map_structure(lambda tensor: tf.cast(tensor, dtype), arguments)


def _as_keras(tensors):
    def made(tensor):
        return keras.Variable(tensor.numpy(), dtype=tensor.dtype.name)

    return tf.nest.map_structure(made, tensors)


@pytest.mark.parametrize(
    "name,options", [*((name, {}) for name in GATES), ("gru", {"reset_after": False})]
)
def test_every_argument_may_be_a_variable_of_keras(tfb, name, options):
    arguments = _all_arguments(name) | {
        "mask": tf.ones([B, T], tf.int32),
        "sequence_lengths": tf.constant([3, 1]),
    }
    want, _ = _call(tfb, name, **arguments, **options)
    alone = [{**arguments, key: _as_keras(value)} for key, value in arguments.items()]
    for given in (*alone, _as_keras(arguments)):
        graph = tf.function(lambda given=given: _call(tfb, name, **given, **options)[0])
        for got in (_call(tfb, name, **given, **options)[0], graph()):
            np.testing.assert_array_equal(got, want)


def test_peepholes_of_keras_get_their_gradient(tfb):
    peepholes = _as_keras((_some(H), _some(H), _some(H)))
    with tf.GradientTape() as tape:
        outputs, _ = _call(tfb, "lstm", peepholes=peepholes)
    for gradient in tape.gradient(outputs, [each.value for each in peepholes]):
        assert tf.reduce_any(gradient != 0)


# Biases that a sum would broadcast.


@pytest.mark.parametrize("reset_after", [False, True])
@pytest.mark.parametrize("shapes", [([12], [1]), ([12], []), ([1], [12]), ([1], [1])])
def test_biases_do_not_broadcast(tfb, reset_after, shapes):
    b_x, b_h = (_some(*shape) for shape in shapes)
    with _refused("gru: b_"):
        _call(tfb, "gru", b_x=b_x, b_h=b_h, reset_after=reset_after)
    unknown = tf.function(
        lambda b_x, b_h: _call(tfb, "gru", b_x=b_x, b_h=b_h, reset_after=reset_after),
        input_signature=[tf.TensorSpec(None)] * 2,
    )
    unknown(_some(12), _some(12))
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(b_x, b_h)


# What the ops take for an input that is left out, a caller says with None.


@all_functions
@pytest.mark.parametrize(
    "argument,dtype",
    [
        ("w_x", tf.float32),
        ("mask", tf.bool),
        ("recurrent_dropout", tf.float32),
        ("sequence_lengths", tf.int64),
    ],
)
def test_an_empty_argument_is_not_left_out(tfb, name, argument, dtype):
    x = _some(B, T, GATES[name] * H) if argument == "w_x" else _some(B, T, IN)
    with _refused(f"{name}: {argument} must have"):
        _call(tfb, name, x=x, **{argument: tf.zeros([0], dtype)})
    unknown = tf.function(
        lambda given: _call(tfb, name, x=x, **{argument: given}),
        input_signature=[tf.TensorSpec(None, dtype)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        unknown(tf.zeros([0], dtype))


@pytest.mark.parametrize("shape", [[None], None])
def test_lengths_whose_number_shows_at_run_time(tfb, shape):
    signature = [tf.TensorSpec([None, T, IN]), tf.TensorSpec(shape, tf.int32)]
    function = tf.function(
        lambda x, lengths: _call(tfb, "lstm", x=x, sequence_lengths=lengths)[0],
        input_signature=signature,
    )
    x, lengths = _some(B, T, IN), tf.constant([3, 1])
    want, _ = _call(tfb, "lstm", x=x, sequence_lengths=lengths)
    np.testing.assert_array_equal(function(x, lengths), want)
    assert function(x[:0], lengths[:0]).shape == (0, T, H)
    for wrong in (lengths[:0], lengths[:1]):
        with _refused("lstm: sequence_lengths must have shape [B]; B and the size given are"):
            function(x, wrong)


def test_an_empty_batch_has_no_lengths(tfb):
    outputs, _ = _call(tfb, "gru", x=_some(0, T, IN), sequence_lengths=tf.zeros([0], tf.int32))
    assert outputs.shape == (0, T, H)


@all_functions
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_a_mask_is_of_bool_or_of_integers(tfb, name, mode):
    mask = tf.constant([[1, 0, 1], [1, 1, 0]])
    run = tf.function if mode == "graph" else (lambda function: function)
    call = run(lambda mask: _call(tfb, name, mask=mask)[0])
    np.testing.assert_array_equal(call(mask), call(tf.cast(mask, tf.bool)))
    error = tf.errors.InvalidArgumentError if mode == "eager" else ValueError
    with pytest.raises(error, match=f"{name}: mask must be of bool or of an integer type, got fl"):
        call(tf.cast(mask, tf.float32))


# The cells, and block_lstm, block_lstm_v2 and block_gru.

BLOCK_FUNCTIONS = ("block_lstm", "block_lstm_v2", "block_gru")
CELLS = ("lstm_block_cell", "gru_block_cell")


def _block_arguments(name):
    arguments = {"x": _some(B, IN) if name in CELLS else _some(T, B, IN)}
    if "gru" in name:
        weights = {"w_ru": _some(IN + H, 2 * H), "w_c": _some(IN + H, H)}
        return {
            **arguments,
            "h_prev": _some(B, H),
            **weights,
            "b_ru": _some(2 * H),
            "b_c": _some(H),
        }
    weights = {"w": _some(IN + H, 4 * H), "b": _some(4 * H)}
    return {**arguments, "state": (_some(B, H), _some(B, H)), **weights}


def _block_call(tfb, name, **changed):
    function = getattr(getattr(tfb, name.removesuffix("_v2")), name)
    return function(**{**_block_arguments(name), **changed})


def _block(tfb, name, x, **options):
    return _block_call(tfb, name, x=x, **options).h


def _block_of(tfb, name, x):
    return lambda: _block(tfb, name, x)


all_block_functions = pytest.mark.parametrize("name", BLOCK_FUNCTIONS)
cells_too = pytest.mark.parametrize("name", [*BLOCK_FUNCTIONS, *CELLS])
with_tuples = pytest.mark.parametrize("name", ["block_lstm", "block_lstm_v2", "lstm_block_cell"])


@all_block_functions
def test_a_length_is_an_integer(tfb, name):
    x = _some(T, B, IN)
    for wrong, kind in ((2.7, "float32"), (True, "bool"), (np.float64(2), "float64")):
        with _refused(f"{name}: seq_len_max must be of an integer type, got {kind}"):
            _block(tfb, name, x, seq_len_max=wrong)
    want = _block(tfb, name, x, seq_len_max=2)
    for length in (np.int16(2), tf.constant(2, tf.uint8), tf.Variable(2)):
        np.testing.assert_array_equal(_block(tfb, name, x, seq_len_max=length), want)


@all_block_functions
def test_whatever_x_is_given_as(tfb, name):
    x = _some(T, B, IN)
    want = _block(tfb, name, x)
    variable = tf.Variable(x, shape=tf.TensorShape(None))
    for given in (variable, x.numpy().astype(np.float64), x.numpy().tolist()):
        np.testing.assert_array_equal(_block(tfb, name, given), want)
        graph = tf.function(_block_of(tfb, name, given))
        np.testing.assert_array_equal(graph(), want)
    for scalar in (1.0, _some()):
        with _refused("x must have shape [T, B, I], got []"):
            _block(tfb, name, scalar)


@cells_too
def test_none_is_no_tensor_of_a_block(tfb, name):
    for argument in _block_arguments(name):
        if argument != "state":
            message = f"{name}: {argument} must be a tensor, got None"
            with _refused(message):
                _block_call(tfb, name, **{argument: None})
            graph = tf.function(
                lambda argument=argument: _block_call(tfb, name, **{argument: None})
            )
            with pytest.raises(ValueError, match=message):
                graph()


@with_tuples
@pytest.mark.parametrize(
    "argument,parts,count", [("state", "cs_prev, h_prev", 2), ("peepholes", "wci, wcf, wco", 3)]
)
def test_tuples_of_a_block(tfb, name, argument, parts, count):
    sizes = (B, H) if argument == "state" else (H,)
    for wrong in (0, 1, count + 1):
        with _refused(f"{name}: {argument} must be ({parts}), got {wrong} of them"):
            _block_call(tfb, name, **{argument: [_some(*sizes)] * wrong})
    with _refused(f"{name}: {argument} must be ({parts}), got a value of type float"):
        _block_call(tfb, name, **{argument: 0.0})
    with _refused(f"{name}: {argument}[0] must be a tensor, got None"):
        _block_call(tfb, name, **{argument: (None,) * count})
    if argument == "state":
        with _refused(f"{name}: {argument} must be ({parts}), got None"):
            _block_call(tfb, name, **{argument: None})


@cells_too
def test_tensors_that_do_not_fit_a_block(tfb, name):
    x = _block_arguments(name)["x"]
    with _refused(f"{name}: x must be a dense tensor, got a RaggedTensor; pass its to_tensor()"):
        _block_call(tfb, name, x=tf.RaggedTensor.from_tensor(x))
    weights, bias = ("w_c", "b_c") if "gru" in name else ("w", "b")
    with _refused(f"{name}: {weights} must be a dense tensor, got a SparseTensor"):
        _block_call(tfb, name, **{weights: tf.sparse.from_dense(_some(IN + H, H))})
    with _refused(f"{name}: {bias} must be of type float32, as x is, got float64"):
        _block_call(tfb, name, **{bias: tf.zeros([H], tf.float64)})


@cells_too
def test_every_tensor_of_a_block_may_be_a_variable_of_keras(tfb, name):
    arguments = _block_arguments(name)
    arguments |= {} if "gru" in name else {"peepholes": (_some(H), _some(H), _some(H))}
    arguments |= {} if name in CELLS else {"seq_len_max": tf.constant(2)}
    want = _block_call(tfb, name, **arguments).h
    alone = [{**arguments, key: _as_keras(value)} for key, value in arguments.items()]
    for given in (*alone, _as_keras(arguments)):
        np.testing.assert_array_equal(_block_call(tfb, name, **given).h, want)


@with_tuples
def test_weights_of_a_block_without_peepholes_take_the_type_of_x(tfb, name):
    weights = {
        k: v.numpy().astype(np.float64) for k, v in _block_arguments(name).items() if k in "wb"
    }
    want = _block_call(tfb, name).h
    np.testing.assert_array_equal(_block_call(tfb, name, **weights).h, want)


# Lengths beyond int64.


@pytest.mark.parametrize("name", [*GATES, *BLOCK_FUNCTIONS])
def test_a_length_beyond_int64_is_given_as_it_is(tfb, name):
    length = 2**63 + 1
    for given in (
        [length, 1],
        np.array([length, 1], np.uint64),
        tf.constant([length, 1], tf.uint64),
    ):
        argument = "sequence_lengths" if name in GATES else "seq_len_max"
        with _refused(f"{name}: {argument} must be in 0..T, got {length}"):
            if name in GATES:
                _call(tfb, name, sequence_lengths=given)
            else:
                _block_call(tfb, name, seq_len_max=given[0])
