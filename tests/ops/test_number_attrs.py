"""The attrs of our own ops that are numbers, which the ops have as text."""

from __future__ import annotations

import fractions
import math
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers import run_modes
from helpers.children import ROOT
from helpers.compare import bits
from helpers.op_table import OPS, is_number, sizes_of

from tf_blockrnn import _loader
from tf_blockrnn._ops import number_attrs

ATTRS = {
    name: [attr for attr, spec in op.attrs.items() if is_number(spec)]
    for name, op in OPS.items()
    if "Sequence" in name
}
ATTRS = {name: attrs for name, attrs in ATTRS.items() if attrs}
ops = pytest.mark.parametrize("name", ATTRS)
TENTH = np.float32(0.1)  # another number than 0.1


def _tensors(name, dtype=tf.float64):
    """Small numbers for all inputs; what may be left out is."""
    op, tensors = OPS[name], {}
    shapes = op.shapes(sizes_of(3, 2, 3, 2))
    for place, (key, argument) in enumerate(op.inputs.items()):
        kind = {"T": dtype, "Tlen": tf.int32, "bool": tf.bool}[argument.type]
        shape = (0,) if key in op.optional() - {"h_grad"} else shapes[key]
        values = np.random.default_rng(place).uniform(0.2, 0.8, shape)
        tensors[key] = tf.cast(tf.constant(values), kind)
    return tensors


def _in_text(name, **attrs):
    """The op itself, which takes text."""
    function = getattr(_loader.load(), f"BlockRNN_{name}")
    return lambda tensors: function(**tensors, **attrs)


@ops
def test_an_attr_is_shown_as_a_number(tfb, name):
    function = getattr(tfb.raw_ops, name)
    assert set(number_attrs.of(f"BlockRNN>{name}")) == set(ATTRS[name])
    for attr in ATTRS[name]:
        default = function.__signature__.parameters[attr].default
        assert default == (0.001 if attr == "epsilon" else 0.0), attr
        assert f"{attr}: An optional `float`. Defaults to `{default:g}`." in function.__doc__


@pytest.mark.parametrize(
    "value",
    [
        *(1, 0.1, TENTH, np.float64(0.1), np.float16(0.1), np.longdouble(0.5)),
        *(np.array(0.1), fractions.Fraction(1, 3)),
    ],
)
@ops
def test_a_number_keeps_its_bits(tfb, name, value):
    with tf.Graph().as_default():
        given = dict.fromkeys(ATTRS[name], value)
        op = getattr(tfb.raw_ops, name)(**_tensors(name), **given)[0].op
    for attr in ATTRS[name]:
        assert float(op.get_attr(attr)) == number_attrs.read(op, attr) == float(value), attr


@pytest.mark.parametrize(
    "value",
    ["0.1", b"0.1", [0.1], np.array([0.1]), 1j, np.complex64(1), np.True_, tf.constant(0.1)],
    ids=repr,
)
@ops
def test_what_is_no_number_is_refused(tfb, name, value):
    for attr in ATTRS[name]:
        with pytest.raises(TypeError, match=f"{name}: {attr} must be a number, got"):
            getattr(tfb.raw_ops, name)(**_tensors(name), **{attr: value})
        with pytest.raises(ValueError, match=f"{name}: {attr} must be a number of float64, got"):
            getattr(tfb.raw_ops, name)(**_tensors(name), **{attr: 10**400})


@ops
def test_none_is_the_default(tfb, name):
    function, tensors = getattr(tfb.raw_ops, name), _tensors(name)
    got = function(**tensors, **dict.fromkeys(ATTRS[name]))
    for one, other in zip(got, function(**tensors), strict=True):
        assert bits(one) == bits(other)


_NO_NUMBERS = (
    *("", "one", "1,5", "1e", "--1", "+0.1", " 0.1", "0.1 ", "0.1\n", "0x1p-3", "1E-1", "1_0"),
    *("nan(abc)", "NaN", "-nan", "+inf", "infinity", "-infinity", "0.1\0", "0.1\0001"),
)
_ESCAPES = str.maketrans({"\n": "\\n", "\0": "\\000"})
_NO_TEXT = [
    (text, f'a number in decimal text, got "{text.translate(_ESCAPES)}"') for text in _NO_NUMBERS
]
_NO_RATE = [(text, f"in 0..1, got {text}") for text in ("-1e-50", "1.5", "nan", "inf")]
_NO_EPSILON = [
    (text, f"a finite number above 0, got {text}") for text in ("0", "-1.0", "nan", "inf")
]


def test_the_names_are_those_of_the_ops():
    table = (ROOT / "cc/ops/contract_rules.h").read_text(encoding="utf-8")
    assert tuple(re.findall(r'\{"(\w+)", NumberRange::', table)) == number_attrs.NAMES
    assert {name for attrs in ATTRS.values() for name in attrs} == set(number_attrs.NAMES)


@pytest.mark.parametrize("mode", run_modes.MODES)
@ops
def test_text_that_an_op_refuses(name, mode):
    """By the kernel itself, and as the graph is built."""
    error = tf.errors.InvalidArgumentError if mode == "eager" else ValueError
    for attr in ATTRS[name]:
        refused = _NO_TEXT + (_NO_RATE if "rate" in attr else [])
        refused = refused + (_NO_EPSILON if attr == "epsilon" else [])
        for text, message in refused:
            run = run_modes.in_mode(mode, _in_text(name, **{attr: text}))
            with pytest.raises(error) as found:
                run(_tensors(name))
            assert f"{name}: {attr} must be {message}" in str(found.value)


def test_an_epsilon_is_above_0_in_the_type_of_the_op(tfb):
    call = tfb.raw_ops.LayerNormGRUSequence
    assert np.isfinite(call(**_tensors("LayerNormGRUSequence"), epsilon=1e-50).h).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="above 0, got 1e-50, 0 in float32"):
        call(**_tensors("LayerNormGRUSequence", tf.float32), epsilon=1e-50)


@pytest.mark.parametrize("dtype", [tf.half, tf.bfloat16, tf.float32, tf.float64])
@pytest.mark.parametrize("name", [name for name in ATTRS if not name.endswith("Grad")])
def test_types_other_than_double_round_to_float32_first(tfb, name, dtype):
    function, tensors = getattr(tfb.raw_ops, name), _tensors(name, dtype)
    for attr in ATTRS[name]:
        exact, rounded, other = (
            function(**tensors, **{attr: value}) for value in (0.1, TENTH, 0.5)
        )
        equal = [bits(a) == bits(b) for a, b in zip(exact, rounded, strict=True)]
        assert all(equal) == (dtype != tf.float64), attr
        assert any(bits(a) != bits(b) for a, b in zip(exact, other, strict=True)), attr


@pytest.mark.parametrize("bound", [math.inf, math.nan, -1.0])
def test_a_bound_that_bounds_nothing(tfb, bound):
    tensors = _tensors("LSTMSequence")
    got, want = (tfb.raw_ops.LSTMSequence(**tensors, cell_clip=clip) for clip in (bound, 0))
    assert bits(got.cs) == bits(want.cs)
    forgets_nothing = tfb.raw_ops.LSTMSequence(**tensors, forget_bias=math.inf)
    assert np.all(forgets_nothing.f == 1)
