"""The C interface of sessions (cc/inference/blockrnn.h), called by ctypes.

`inference.Session` calls the same functions with everything that it may be given: here is what it
never passes on, and the bits of each cell.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from helpers.session_oracle import F32, by_ops, normal
from helpers.weight_stacks import Stack, random_weights

from tf_blockrnn.inference import _library

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("c")]

_LSTM, _GRU_BEFORE, _GRU_AFTER, _TANH, _RELU, _NORM_LSTM, _NORM_GRU = range(7)
_SIZES = {"inputs": 9, "units": 33, "dtype": F32}
_STACKS = {
    _LSTM: Stack("lstm", **_SIZES),
    _GRU_BEFORE: Stack("gru", reset_after=False, **_SIZES),
    _GRU_AFTER: Stack("gru", **_SIZES),
    _TANH: Stack("rnn_tanh", **_SIZES),
    _RELU: Stack("rnn_relu", **_SIZES),
    _NORM_LSTM: Stack("layer_norm_lstm", **_SIZES),
    _NORM_GRU: Stack("layer_norm_gru", **_SIZES),
}
_WITH_NORMS = (_NORM_LSTM, _NORM_GRU)
_EPSILON = 0.125  # of these stacks
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

    def run(self, x, lengths=None):
        """The outputs, from a state of zeros."""
        batch, steps, _ = x.shape
        y = np.full((batch, steps, self.outputs), np.nan, np.float32)
        given = _address(x), batch, steps, _address(lengths), None, None, _address(y)
        code = self.library.blockrnn_session_run(self.handle, *given)
        assert code == 0, self.library.blockrnn_last_error()
        return y


def _arrays(described):
    """Those of the only direction."""
    one = described.layers[0].forward
    return {name: getattr(one, name) for name in _library._ARRAYS}


@pytest.mark.parametrize("cell", _STACKS)
def test_bits_of_the_ops(library, cell):
    """Fields of norms are read for cells with norms alone; other programs need not set them."""

    class Anywhere:
        class ctypes:
            data = 8

    described = random_weights(_STACKS[cell])
    arrays, numbers = _arrays(described), {}
    if cell not in _WITH_NORMS:
        arrays |= {name: Anywhere for name in ("norm_x", "norm_h", "norm_c")}
        numbers = {"epsilon": float("nan"), "norm_output_only": -7}
    x, lengths = normal(3, 12, 9), np.array([12, 0, 5], np.int64)
    with _Session(library, cell, [[arrays]], **numbers) as session:
        states = 2 if cell in (_LSTM, _NORM_LSTM) else 1
        assert library.blockrnn_session_state_size(session.handle) == states * 33
        for given in (None, lengths):
            want, _ = by_ops(described, x, given)
            np.testing.assert_array_equal(session.run(x, given), want)


def test_two_directions_have_no_step(library):
    both = [_arrays(random_weights(_STACKS[_LSTM], seed)) for seed in (0, 1)]
    x = normal(3, 9)
    with _Session(library, _LSTM, [both]) as session:
        handle, step = session.handle, library.blockrnn_session_step
        assert step(handle, x.ctypes.data, 3, None, None, None, 0) == _INVALID


def test_weights_take_less_memory_in_low_precision(library):
    arrays, sizes = _arrays(random_weights(Stack("lstm", inputs=64, units=64, dtype=F32))), []
    for precision in (0, 1, 2):
        with _Session(library, _LSTM, [[arrays]], precision=precision) as session:
            sizes.append(library.blockrnn_session_weight_bytes(session.handle))
    assert sizes[0] > 1.9 * sizes[1]
    assert sizes[0] > 3.4 * sizes[2]


def test_malformed_sessions(library):
    good, gru, lstm = (
        _arrays(random_weights(_STACKS[cell])) for cell in (_LSTM, _NORM_GRU, _NORM_LSTM)
    )
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
            {"cell": _GRU_AFTER, "layers": [[gru | {"peepholes": good["b_x"]}]]},
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
                {"cell": _NORM_GRU, "layers": [[gru | {name: None}]]},
            )
            for name in ("norm_x", "norm_h")
        ),
        *(
            (f"layer 0: forward, {name} must not be NULL", {"cell": _NORM_LSTM, "layers": layers})
            for name in ("norm_x", "norm_h", "norm_c")
            for layers in [[[lstm | {name: None}]]]
        ),
        (
            "peepholes are for lstm",
            {"cell": _NORM_LSTM, "layers": [[lstm | {"peepholes": good["b_x"]}]]},
        ),
        (
            "w_p is for lstm",
            {"cell": _NORM_LSTM, "layers": [[lstm | {"w_p": good["b_x"]}]]},
        ),
        ("layer 1: inputs must be 33", {"layers": [[good], [good]]}),
    ]
    for message, case in cases:
        arguments = {"cell": _LSTM, "layers": [[good]]} | case
        session = _Session(library, arguments.pop("cell"), arguments.pop("layers"), **arguments)
        assert session.code == _INVALID, message
        assert session.handle.value is None
        assert message in library.blockrnn_last_error().decode()


def test_malformed_calls(library):
    x = normal(2, 3, 9)
    y = np.zeros((2, 3, 33), np.float32)
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
    with _Session(library, _LSTM, [[_arrays(random_weights(_STACKS[_LSTM]))]]) as session:
        for message, arguments in cases:
            assert library.blockrnn_session_run(session.handle, *arguments) == _INVALID, message
            assert message in library.blockrnn_last_error().decode()
    assert not y.any()
