"""The C interface of sessions (cc/inference/blockrnn.h), called by ctypes, against the ops."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

import tf_blockrnn
from tf_blockrnn.inference import _library

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("c")]

_LSTM, _GRU_BEFORE, _GRU_AFTER, _TANH, _RELU, _NORM_LSTM, _NORM_GRU = range(7)
_PLAIN = {_LSTM: 4, _GRU_BEFORE: 3, _GRU_AFTER: 3, _TANH: 1, _RELU: 1}
_GATES = _PLAIN | {_NORM_LSTM: 4, _NORM_GRU: 3}
_EPSILON = 0.125
_INVALID = 1


@pytest.fixture(scope="module")
def library():
    """The library, whose functions know the types of their arguments."""
    lib = _library.library()
    lib.blockrnn_session_state_size.restype = ctypes.c_int64
    lib.blockrnn_session_state_size.argtypes = [ctypes.c_void_p]
    return lib


def _address(array):
    return None if array is None else array.ctypes.data


class _Session:
    """A session of layers, each given as a list of directions: dicts of arrays."""

    def __init__(self, library, cell, layers, *, precision=0, threads=1, **numbers):
        self.library, self.handle = library, ctypes.c_void_p()
        made = []
        for directions in layers:
            _, inputs, units = directions[0]["w_x"].shape
            structs = [
                _library._Direction(*(_address(arrays.get(name)) for name in _library._ARRAYS))
                for arrays in directions
            ]
            pointers = [ctypes.pointer(struct) for struct in structs]
            outputs = directions[0]["w_h"].shape[1]
            made.append(
                _library._Layer(inputs, units, outputs, pointers[0], (pointers + [None])[1])
            )
        layers_of_model = (_library._Layer * len(made))(*made)
        numbers = {"epsilon": _EPSILON} | numbers
        model = _library._Model(cell, len(made), layers_of_model, **numbers)
        self.code = library.blockrnn_session_create(
            ctypes.byref(model), precision, threads, ctypes.byref(self.handle)
        )
        self.outputs = len(layers[-1]) * layers[-1][0]["w_h"].shape[1]

    def __enter__(self):
        assert self.code == 0, self.library.blockrnn_last_error()
        return self

    def __exit__(self, *_):
        self.library.blockrnn_session_destroy(self.handle)

    def run(self, x, lengths=None, state=None):
        batch, steps, _ = x.shape
        size = self.library.blockrnn_session_state_size(self.handle)
        y = np.full((batch, steps, self.outputs), np.nan, np.float32)
        new_state = np.full(batch * size, np.nan, np.float32)
        code = self.library.blockrnn_session_run(
            self.handle,
            _address(x),
            batch,
            steps,
            _address(lengths),
            _address(state),
            _address(new_state),
            _address(y),
        )
        assert code == 0, self.library.blockrnn_last_error()
        return y, new_state

    def step(self, x, state=None, rows_apart=0):
        batch = len(x)
        size = self.library.blockrnn_session_state_size(self.handle)
        y = np.full((batch, self.outputs), np.nan, np.float32)
        new_state = np.full(batch * size, np.nan, np.float32)
        code = self.library.blockrnn_session_step(
            self.handle,
            _address(x),
            batch,
            _address(state),
            _address(new_state),
            _address(y),
            rows_apart,
        )
        assert code == 0, self.library.blockrnn_last_error()
        return y, new_state


def _weights(gates, inputs, units, seed=0, **more):
    """The norms are read for the cells that have them alone."""
    rng = np.random.default_rng(seed)
    shapes = {
        "w_x": (gates, inputs, units),
        "w_h": (gates, units, units),
        "b_x": (gates, units),
        "b_h": (gates, units),
        "norm_x": (2, gates, units),
        "norm_h": (2, gates, units),
        "norm_c": (2, units),
        **more,
    }
    return {
        name: rng.uniform(-0.4, 0.4, shape).astype(np.float32) for name, shape in shapes.items()
    }


def _x(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _columns(array):
    """[G, rows, H] as the ops have it, [rows, G · H]."""
    return np.ascontiguousarray(np.concatenate(list(array), axis=-1))


def _by_op(cell, arrays, x, lengths=None, output_only=False):
    """The outputs of the op with the same weights."""
    flat = {name: _columns(arrays[name]) for name in ("w_x", "w_h", "b_x", "b_h")}
    lengths = {} if lengths is None else {"lengths": lengths}
    if cell == _LSTM:
        peepholes = tuple(arrays["peepholes"]) if "peepholes" in arrays else None
        weights = (flat["w_x"], flat["w_h"], flat["b_x"] + flat["b_h"])
        return tf_blockrnn.lstm(x, *weights, peepholes=peepholes, **lengths)[0].numpy()
    if cell == _NORM_LSTM:
        norms = {"kernel_norm": "norm_x", "recurrent_norm": "norm_h", "state_norm": "norm_c"}
        return tf_blockrnn.layer_norm_lstm(
            *(x, flat["w_x"], flat["w_h"], flat["b_x"] + flat["b_h"]),
            **{name: tuple(arrays[ours].reshape(2, -1)) for name, ours in norms.items()},
            epsilon=_EPSILON,
            norm_output_only=output_only,
            **lengths,
        )[0].numpy()
    if cell == _NORM_GRU:
        return tf_blockrnn.layer_norm_gru(
            *(x, flat["w_x"], flat["w_h"], flat["b_x"], flat["b_h"]),
            kernel_norm=tuple(arrays["norm_x"].reshape(2, -1)),
            recurrent_norm=tuple(arrays["norm_h"].reshape(2, -1)),
            epsilon=_EPSILON,
            **lengths,
        )[0].numpy()
    if cell == _GRU_AFTER:
        weights = (flat["w_x"], flat["w_h"], flat["b_x"], flat["b_h"])
        return tf_blockrnn.gru(x, *weights, **lengths)[0].numpy()
    if cell == _GRU_BEFORE:
        weights = (flat["w_x"], flat["w_h"], flat["b_x"] + flat["b_h"])
        return tf_blockrnn.gru(x, *weights, reset_after=False, **lengths)[0].numpy()
    return tf_blockrnn.simple_rnn(
        x,
        flat["w_x"],
        flat["w_h"],
        flat["b_x"] + flat["b_h"],
        activation="relu" if cell == _RELU else "tanh",
        **lengths,
    )[0].numpy()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch, steps", [(1, 1), (3, 5), (5, 11), (2, 40), (20, 12)])
@pytest.mark.parametrize("cell", _GATES)
def test_bits_of_the_ops(library, cell, batch, steps, threads):
    arrays, x = _weights(_GATES[cell], 9, 33), _x(batch, steps, 9)
    with _Session(library, cell, [[arrays]], threads=threads) as session:
        y, _ = session.run(x)
    np.testing.assert_array_equal(y, _by_op(cell, arrays, x))


def test_the_norm_of_the_output_only(library):
    arrays, x = _weights(4, 9, 33), _x(3, 12, 9)
    lengths = np.array([12, 0, 5], np.int64)
    found = []
    for output_only in (0, 1):
        with _Session(library, _NORM_LSTM, [[arrays]], norm_output_only=output_only) as session:
            found.append(session.run(x, lengths)[0])
        want = _by_op(_NORM_LSTM, arrays, x, lengths, bool(output_only))
        np.testing.assert_array_equal(found[-1], want)
    assert not np.array_equal(*found)


@pytest.mark.parametrize("cell", _PLAIN)
def test_fields_of_norms_are_read_for_cells_with_norms_alone(library, cell):
    """A program that has no such cell need not set them."""

    class Anywhere:
        class ctypes:
            data = 8

    arrays, x = _weights(_GATES[cell], 9, 33), _x(2, 3, 9)
    wild = arrays | {name: Anywhere for name in ("norm_x", "norm_h", "norm_c")}
    numbers = {"epsilon": float("nan"), "norm_output_only": -7}
    with _Session(library, cell, [[wild]], **numbers) as session:
        np.testing.assert_array_equal(session.run(x)[0], _by_op(cell, arrays, x))


def test_a_gru_needs_no_norm_of_a_cell_state(library):
    arrays, x = _weights(3, 9, 33), _x(2, 3, 9)
    with _Session(library, _NORM_GRU, [[arrays | {"norm_c": None}]]) as session:
        np.testing.assert_array_equal(session.run(x)[0], _by_op(_NORM_GRU, arrays, x))


def test_peepholes_and_lengths(library):
    arrays, x = _weights(4, 5, 17, peepholes=(3, 17)), _x(4, 14, 5)
    lengths = np.array([14, 0, 3, 9], np.int64)
    with _Session(library, _LSTM, [[arrays]]) as session:
        y, _ = session.run(x, lengths)
    np.testing.assert_array_equal(y, _by_op(_LSTM, arrays, x, lengths))


@pytest.mark.parametrize("steps", [1, 15])
def test_projection_and_clip(library, steps):
    arrays = _weights(4, 5, 17, w_h=(4, 6, 17), w_p=(6, 17))
    x, flat = (
        _x(3, steps, 5),
        {name: _columns(arrays[name]) for name in ("w_x", "w_h", "b_x", "b_h")},
    )
    with _Session(library, _LSTM, [[arrays]], cell_clip=0.3) as session:
        y, _ = session.run(x)
    bias = flat["b_x"] + flat["b_h"]
    expected, _ = tf_blockrnn.lstm(
        x, flat["w_x"], flat["w_h"], bias, w_p=arrays["w_p"], cell_clip=0.3
    )
    np.testing.assert_array_equal(y, expected.numpy())


@pytest.mark.parametrize("cell", _GATES)
@pytest.mark.parametrize("precision, bound", [(0, 2e-6), (1, 5e-3), (2, 5e-3)])
def test_steps_of_a_stack_equal_a_run(library, cell, precision, bound):
    layers = [[_weights(_GATES[cell], 6, 20)], [_weights(_GATES[cell], 20, 12, seed=2)]]
    x = _x(3, 15, 6)
    with _Session(library, cell, layers, precision=precision) as session:
        whole, last = session.run(x)
        state, steps = None, []
        for t in range(x.shape[1]):
            y, state = session.step(np.ascontiguousarray(x[:, t]), state)
            steps.append(y)
    np.testing.assert_allclose(np.stack(steps, 1), whole, rtol=0, atol=bound)
    np.testing.assert_allclose(state, last, rtol=0, atol=bound)


@pytest.mark.parametrize("precision", [0, 1, 2])
@pytest.mark.parametrize("cell", _GATES)
def test_rows_apart(library, cell, precision):
    arrays, x = _weights(_GATES[cell], 6, 20), _x(9, 6)
    with _Session(library, cell, [[arrays]], precision=precision) as session:
        together, _ = session.step(x, rows_apart=1)
        for row in range(len(x)):
            alone, _ = session.step(x[row : row + 1].copy(), rows_apart=1)
            np.testing.assert_array_equal(alone[0], together[row])


def test_lower_precision_is_near_and_smaller(library):
    arrays, x = _weights(4, 64, 64), _x(2, 30, 64)
    arrays = {name: array * np.float32(0.5) for name, array in arrays.items()}
    results, sizes = [], []
    for precision in (0, 1, 2):
        with _Session(library, _LSTM, [[arrays]], precision=precision) as session:
            results.append(session.run(x)[0])
            sizes.append(library.blockrnn_session_weight_bytes(session.handle))
    assert 1e-6 < np.abs(results[1] - results[0]).max() < 1e-2
    assert 1e-6 < np.abs(results[2] - results[0]).max() < 3e-2
    assert sizes[0] > 1.9 * sizes[1]
    assert sizes[0] > 3.4 * sizes[2]


def test_two_directions(library):
    forward, backward = _weights(4, 7, 11), _weights(4, 7, 11, seed=5)
    x = _x(3, 14, 7)
    with _Session(library, _LSTM, [[forward, backward]]) as session:
        y, _ = session.run(x)
        code = library.blockrnn_session_step(session.handle, x.ctypes.data, 3, None, None, None, 0)
        assert code == _INVALID
    reverse = _by_op(_LSTM, backward, np.ascontiguousarray(x[:, ::-1]))[:, ::-1]
    expected = np.concatenate([_by_op(_LSTM, forward, x), reverse], axis=-1)
    np.testing.assert_array_equal(y, expected)


def test_many_threads_call_one_session(library):
    arrays, inputs = _weights(4, 9, 33), [_x(2, 13, 9, seed=n) for n in range(8)]
    with _Session(library, _LSTM, [[arrays]], threads=2) as session:
        expected = [session.run(x)[0] for x in inputs]
        found = [[] for _ in inputs]

        def work(n):
            for _ in range(50):
                found[n].append(session.run(inputs[n])[0])

        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(inputs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for n, results in enumerate(found):
        assert len(results) == 50
        for result in results:
            np.testing.assert_array_equal(result, expected[n])


def test_malformed_sessions(library):
    good = _weights(4, 5, 6)
    cases = [
        ("cell must be a blockrnn_cell", {"cell": 9}),
        ("precision must be a blockrnn_precision", {"precision": 3}),
        ("threads must be in 1..1024, got 0", {"threads": 0}),
        ("cell_clip must be 0 or above", {"cell_clip": float("nan")}),
        ("cell_clip is for lstm", {"cell": _RELU, "cell_clip": 1.0}),
        ("zoneout_h and zoneout_c must be in 0..1", {"zoneout_h": float("nan")}),
        ("zoneout_h and zoneout_c must be in 0..1, got 1.5", {"zoneout_c": 1.5}),
        ("zoneout_h is for lstm and gru alone", {"cell": _RELU, "zoneout_h": 0.5}),
        ("zoneout_c is for lstm alone", {"cell": _GRU_AFTER, "zoneout_c": 0.5}),
        (
            "peepholes are for lstm",
            {"cell": _GRU_AFTER, "layers": [[good | {"peepholes": good["b_x"]}]]},
        ),
        ("cell_clip is for lstm", {"cell": _NORM_LSTM, "cell_clip": 1.0}),
        *(
            ("epsilon must be above 0, and finite", {"cell": _NORM_LSTM, "epsilon": epsilon})
            for epsilon in (0.0, -1.0, float("nan"), float("inf"))
        ),
        ("zoneout_h is for lstm and gru alone", {"cell": _NORM_LSTM, "zoneout_h": 0.5}),
        ("zoneout_c is for lstm alone", {"cell": _NORM_LSTM, "zoneout_c": 0.5}),
        *(
            (
                f"layer 0: forward, {name} must not be NULL",
                {"cell": _NORM_GRU, "layers": [[_weights(3, 5, 6) | {name: None}]]},
            )
            for name in ("norm_x", "norm_h")
        ),
        *(
            (f"layer 0: forward, {name} must not be NULL", {"cell": _NORM_LSTM, "layers": layers})
            for name in ("norm_x", "norm_h", "norm_c")
            for layers in [[[good | {name: None}]]]
        ),
        (
            "peepholes are for lstm",
            {"cell": _NORM_LSTM, "layers": [[good | {"peepholes": good["b_x"]}]]},
        ),
        (
            "w_p is for lstm",
            {"cell": _NORM_LSTM, "layers": [[good | {"w_p": good["b_x"]}]]},
        ),
        ("layer 1: inputs must be 6", {"layers": [[good], [_weights(4, 5, 6)]]}),
    ]
    for message, case in cases:
        arguments = {"cell": _LSTM, "layers": [[good]]} | case
        session = _Session(library, arguments.pop("cell"), arguments.pop("layers"), **arguments)
        assert session.code == _INVALID, message
        assert session.handle.value is None
        assert message in library.blockrnn_last_error().decode()


def test_malformed_calls(library):
    x = _x(2, 3, 5)
    y = np.zeros((2, 3, 6), np.float32)
    lengths = np.array([3, 4], np.int64)
    cases = [
        ("x must not be NULL", (None, 2, 3, None, None, None, y.ctypes.data)),
        ("y must not be NULL", (x.ctypes.data, 2, 3, None, None, None, None)),
        ("batch must not be negative, got -1", (x.ctypes.data, -1, 3, *[None] * 3, y.ctypes.data)),
        ("steps must not be negative", (x.ctypes.data, 2, -3, *[None] * 3, y.ctypes.data)),
        ("too many elements", (x.ctypes.data, 2**40, 2**40, *[None] * 3, y.ctypes.data)),
        (
            "lengths[1] must be in 0..3, got 4",
            (x.ctypes.data, 2, 3, lengths.ctypes.data, None, None, y.ctypes.data),
        ),
    ]
    with _Session(library, _LSTM, [[_weights(4, 5, 6)]]) as session:
        for message, arguments in cases:
            assert library.blockrnn_session_run(session.handle, *arguments) == _INVALID, message
            assert message in library.blockrnn_last_error().decode()
    assert not y.any()
