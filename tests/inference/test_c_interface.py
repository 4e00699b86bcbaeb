"""The C interface of sessions (cc/inference/blockrnn.h), called by ctypes.

`inference.Session` calls the same functions with everything that it may be given: here is what it
never passes on, and the bits of each cell.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.session_oracle import F32, by_ops, normal
from helpers.weight_stacks import NORM_CELLS, WITH_CELL_STATE, Stack, random_weights

from tf_blockrnn.inference import _library

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("c")]

_SIZES = {"inputs": 9, "units": 33, "dtype": F32}
_INVALID = 1


def _stack(cell: str) -> Stack:
    cell, _, before = cell.partition(" ")
    return Stack(cell, reset_after=not before, **_SIZES)


@pytest.fixture
def library():
    lib = _library.library()
    lib.blockrnn_session_state_size.restype = ctypes.c_int64
    lib.blockrnn_session_state_size.argtypes = [ctypes.c_void_p]
    return lib


def _refused(message: str, library, code: int) -> None:
    assert code == _INVALID and message in library.blockrnn_last_error().decode(), message


def _model(kind: str, /, layers: int = 1, **changed):
    """What `_library.create` reads of weights, which nobody has checked; arrays may be changed."""
    described = random_weights(_stack(kind))
    one = described.layers[0].forward
    fields = {name: getattr(one, name) for name in _library._ARRAYS}
    fields |= {"input_size": 9, "units": 33, "output_size": 33}
    numbers = ("cell", "reset_after", "cell_clip", "zoneout_h", "zoneout_c", "epsilon")
    others = ("norm_output_only", "activation", "hard_sigmoid")
    model = {name: getattr(described, name) for name in (*numbers, *others)}
    for name, value in changed.items():
        (fields if name in fields else model)[name] = value
    layer = SimpleNamespace(forward=SimpleNamespace(**fields), backward=None)
    return SimpleNamespace(**model, num_layers=layers, layers=[layer] * layers)


@contextlib.contextmanager
def _session(weights, precision: str = "float32"):
    handle, destroy = _library.create(weights, precision, 1)
    yield handle
    destroy(handle)


@pytest.mark.parametrize("cell", ["lstm", "gru", "gru before", "rnn_tanh", "rnn_relu", *NORM_CELLS])
def test_bits_of_the_ops(library, cell):
    """Fields of norms are read for cells with norms alone; other programs need not set them."""
    anywhere = SimpleNamespace(ctypes=SimpleNamespace(data=8))
    unset = dict.fromkeys(("norm_x", "norm_h", "norm_c"), anywhere) | {"epsilon": float("nan")}
    model = _model(cell, **({} if cell in NORM_CELLS else unset | {"norm_output_only": True}))
    x, lengths = normal(3, 12, 9), np.array([12, 0, 5], np.int64)
    with _session(model) as handle:
        states = 2 if cell in WITH_CELL_STATE else 1
        assert library.blockrnn_session_state_size(handle) == states * 33
        for given in (None, lengths):
            want, _ = by_ops(random_weights(_stack(cell)), x, given)
            y = np.full(want.shape, np.nan, F32)
            rows = None if given is None else given.ctypes.data
            arguments = x.ctypes.data, 3, 12, rows, None, None, y.ctypes.data
            _library.check("run", library.blockrnn_session_run(handle, *arguments))
            np.testing.assert_array_equal(y, want)


def test_two_directions_have_no_step(library):
    x = normal(3, 9)
    with _session(random_weights(Stack("lstm", directions=2, **_SIZES))) as handle:
        step = library.blockrnn_session_step
        assert step(handle, x.ctypes.data, 3, None, None, None, 0) == _INVALID


_NAN, _ROWS = float("nan"), np.ones((4, 33), F32)


@pytest.mark.parametrize(
    ("message", "cell", "changed"),
    [
        ("cell_clip must be 0 or above", "lstm", {"cell_clip": _NAN}),
        *(
            ("cell_clip is for lstm", cell, {"cell_clip": 1.0})
            for cell in ("rnn_relu", *NORM_CELLS)
        ),
        ("zoneout_h and zoneout_c must be in 0..1", "lstm", {"zoneout_h": _NAN}),
        ("zoneout_h and zoneout_c must be in 0..1, got 1.5", "lstm", {"zoneout_c": 1.5}),
        *(
            ("zoneout_h is for lstm and gru alone", cell, {"zoneout_h": 0.5})
            for cell in ("rnn_relu", *NORM_CELLS)
        ),
        *(
            ("zoneout_c is for lstm alone", cell, {"zoneout_c": 0.5})
            for cell in ("gru", *NORM_CELLS)
        ),
        *(
            ("hard_sigmoid must be 0 or above, and finite", "lstm", {"hard_sigmoid": slope})
            for slope in (-0.2, _NAN, float("inf"))
        ),
        *(
            ("activation and hard_sigmoid are for lstm and gru alone", cell, other)
            for cell in ("rnn_relu", *NORM_CELLS)
            for other in ({"activation": "relu"}, {"hard_sigmoid": 0.2})
        ),
        *(("peepholes are for lstm", cell, {"peepholes": _ROWS}) for cell in ("gru", *NORM_CELLS)),
        ("w_p is for lstm", "layer_norm_lstm", {"w_p": _ROWS}),
        *(
            ("epsilon must be above 0, and finite", "layer_norm_lstm", {"epsilon": epsilon})
            for epsilon in (0.0, -1.0, _NAN, float("inf"))
        ),
        *(
            (f"layer 0: forward, {name} must not be NULL", cell, {name: None})
            for cell, norms in (("layer_norm_lstm", "xhc"), ("layer_norm_gru", "xh"))
            for name in (f"norm_{of}" for of in norms)
        ),
        ("layer 1: inputs must be 33", "lstm", {"layers": 2}),
    ],
)
def test_malformed_sessions(library, message, cell, changed):
    with pytest.raises(ValueError, match=re.escape(message)):
        _library.create(_model(cell, **changed), "float32", 1)


@pytest.mark.parametrize(
    ("message", "changed"),
    [
        ("num_layers must be at least 1, and layers not NULL", {"num_layers": 0}),
        ("num_layers must be at least 1, and layers not NULL", {"layers": None}),
        *(
            (
                "model: struct_size must be sizeof(blockrnn_model), at least 56 and a multiple "
                f"of 8, got {size}",
                {"struct_size": size},
            )
            for size in (0, 48, 57, 60, 2**40)
        ),
        *(
            (f"{name} must be a blockrnn_{name}, got {value}", {name: value})
            for name in ("cell", "activation")
            for value in (-1, 9, 2**31 - 1, -(2**31))
        ),
    ],
)
def test_malformed_structs(library, message, changed):
    weights = _model("lstm")
    model = _library.described(weights)
    for name, value in changed.items():
        setattr(model, name, value)
    with pytest.raises(ValueError, match=re.escape(message)):
        _library.create_of(model, "float32", 1)


def test_layers_of_two_sizes(library):
    weights = random_weights(Stack("gru", layers=2, **_SIZES))
    model = _library.described(weights)
    model.layers[1].struct_size = 8
    with pytest.raises(ValueError, match="layer 1: struct_size must be that of layer 0, 48, got 8"):
        _library.create_of(model, "float32", 1)


@functools.cache
def _later(kind: type) -> type:
    """A struct in a later version, which has another member."""
    return type("Later", (kind,), {"_fields_": [("later", ctypes.c_int64)]})


def _grown(one, later: int):
    kind = _later(type(one))
    values = {name: getattr(one, name) for name, _ in type(one)._fields_}
    return kind(**values | {"struct_size": ctypes.sizeof(kind), "later": later})


def _later_model(weights, struct: str, later: int):
    """What a program passes whose header has another member in a struct."""
    given = _library.described(weights)
    model = _grown(given, later if struct == "model" else 0)
    layers = [given.layers[n] for n in range(weights.num_layers)]
    if struct == "direction":
        ones = [_grown(layers[1].backward[0], later)]
    else:
        ones = [_grown(layers[0], 0), _grown(layers[1], later if struct == "layer" else 0)]
    array = (type(ones[0]) * len(ones))(*ones)
    pointer = ctypes.cast(array, ctypes.POINTER(array._type_.__base__))
    if struct == "direction":
        layers[1].backward = pointer
    else:
        model.layers = pointer
    model.memory = given, layers, array
    return model


@pytest.mark.parametrize(
    ("struct", "where", "size"),
    [
        ("model", "model: ", 56),
        ("layer", "layer 1: ", 48),
        ("direction", "layer 1: backward, ", 80),
    ],
)
def test_later_programs(library, struct, where, size):
    """They run unless they use what this library does not know."""
    weights = random_weights(Stack("gru", layers=2, directions=2, **_SIZES))
    text = f"{where}the member at byte {size} of blockrnn_{struct} must be zero"
    with pytest.raises(ValueError, match=text):
        _library.create_of(_later_model(weights, struct, 1), "float32", 1)
    x = normal(3, 12, 9)
    want, _ = by_ops(weights, x, None)
    handle, destroy = _library.create_of(_later_model(weights, struct, 0), "float32", 1)
    y = np.empty_like(want)
    arguments = x.ctypes.data, 3, 12, None, None, None, y.ctypes.data
    _library.check("run", library.blockrnn_session_run(handle, *arguments))
    destroy(handle)
    np.testing.assert_array_equal(y, want)


def test_malformed_options(library, monkeypatch):
    for number in (3, -1, 2**31 - 1):
        monkeypatch.setitem(_library.PRECISIONS, "unknown", number)
        text = f"precision must be a blockrnn_precision, got {number}"
        with pytest.raises(ValueError, match=text):
            _library.create(_model("lstm"), "unknown", 1)
    with pytest.raises(ValueError, match="threads must be in 1..1024, got 0"):
        _library.create(_model("lstm"), "float32", 0)


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
    with _session(_model("lstm")) as handle:
        for message, arguments in cases:
            _refused(message, library, library.blockrnn_session_run(handle, *arguments))
        wrong = _sequences(x, y, lengths=lengths.ctypes.data)
        code = library.blockrnn_session_run_sequences(handle, ctypes.byref(wrong))
        _refused("lengths[1] must be in 0..3, got 4", library, code)
    assert not y.any()


def _sequences(x, y, **more):
    size = ctypes.sizeof(_library.Sequences)
    arrays = {"x": x.ctypes.data, "y": y.ctypes.data}
    return _library.Sequences(struct_size=size, batch=len(x), steps=x.shape[1], **arrays, **more)


def test_any_number_but_zero_is_a_reset(library):
    x, want, got = normal(2, 4, 9), np.empty((2, 4, 33), F32), np.empty((2, 4, 33), F32)
    resets = np.array([[0, 0, 255, 0], [0, 2, 0, 128]], np.uint8)
    session, run = random_weights(_stack("gru")), library.blockrnn_session_run_sequences
    with _session(session) as handle:
        for given, y in ((resets, got), (resets != 0, want)):
            call = _sequences(x, y, resets=given.ctypes.data)
            _library.check("run", run(handle, ctypes.byref(call)))
        np.testing.assert_array_equal(got, want)
        # None.
        _library.check("run", run(handle, ctypes.byref(_sequences(x, got))))
        arguments = x.ctypes.data, 2, 4, None, None, None, want.ctypes.data
        assert np.abs(got - want).max() > 1e-3
        _library.check("run", library.blockrnn_session_run(handle, *arguments))
        np.testing.assert_array_equal(got, want)


def test_malformed_structs_of_calls(library):
    x, y = normal(2, 3, 9), np.zeros((2, 3, 33), F32)
    run = library.blockrnn_session_run_sequences
    with _session(_model("lstm")) as handle:
        _refused("sequences must not be NULL", library, run(handle, None))
        for size in (0, 64, 73, 76, 2**40):
            call = _sequences(x, y)
            call.struct_size = size
            text = f"sizeof(blockrnn_sequences), at least 72 and a multiple of 8, got {size}"
            _refused(f"sequences: struct_size must be {text}", library, run(handle, call))
        text = "sequences: the member at byte 72 of blockrnn_sequences must be zero"
        _refused(text, library, run(handle, _grown(_sequences(x, y), 1)))
        assert not y.any()
        _library.check("run", run(handle, _grown(_sequences(x, y), 0)))
    assert y.any()
    _refused("session must not be NULL", library, run(None, _sequences(x, y)))


def test_an_older_library_is_refused(monkeypatch):
    monkeypatch.setattr(_library, "_API_VERSION", 2**31 - 1)
    with pytest.raises(ImportError, match="needs version 2147483647 of the C interface, but"):
        _library.library.__wrapped__()


def test_null(library):
    weights = _model("lstm")
    model = ctypes.byref(_library.described(weights))
    create = library.blockrnn_session_create
    _refused("session must not be NULL", library, create(model, 0, 1, None))
    handle = ctypes.c_void_p(8)
    _refused("model must not be NULL", library, create(None, 0, 1, ctypes.byref(handle)))
    assert handle.value is None
    library.blockrnn_session_destroy(None)
    for call, arguments in ("run", [None] * 4), ("step", [None, None, None, 0]):
        function = getattr(library, f"blockrnn_session_{call}")
        sizes = (1, 1) if call == "run" else (1,)
        code = function(None, None, *sizes, *arguments)
        _refused("session must not be NULL", library, code)
    assert library.blockrnn_session_state_size(None) == -1
    assert library.blockrnn_session_weight_bytes(None) == -1
