"""The cuDNN RNN ops carry TensorFlow's signatures, and both names have CPU kernels."""

from __future__ import annotations

import inspect

import pytest
import tensorflow as tf
from helpers import cudnn_ops, cudnn_params_perturbation
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network
from tensorflow.python.framework import kernels, op_def_registry

NAMES = (
    *cudnn_ops.FORWARD.values(),
    *cudnn_ops.BACKPROP.values(),
    *cudnn_params_perturbation.OPS,
)
all_ops = pytest.mark.parametrize("name", NAMES)
TYPES = {tf.as_dtype(d).as_datatype_enum for d in cudnn_ops.DTYPES}


def test_there_are_eleven():
    registered = {n for n in dir(tf.raw_ops) if n.startswith("CudnnRNN")}
    assert set(NAMES) == registered and len(NAMES) == 11


@all_ops
def test_signature_is_tensorflows(tfb, name):
    """Names, types, order, defaults and flags, from the running TensorFlow's registry."""
    del tfb
    ours, stock = op_def_registry.get(f"BlockRNN>{name}"), op_def_registry.get(name)
    for part in ("input_arg", "output_arg"):
        fields = ("name", "type", "type_attr", "number_attr", "type_list_attr", "is_ref")
        mine, theirs = (
            [[getattr(a, f) for f in fields] for a in getattr(op, part)] for op in (ours, stock)
        )
        assert mine == theirs
    assert [a.name for a in ours.attr] == [a.name for a in stock.attr]
    for mine, theirs in zip(ours.attr, stock.attr, strict=True):
        assert (mine.type, mine.default_value) == (theirs.type, theirs.default_value)
        assert mine.HasField("default_value") == theirs.HasField("default_value")
        assert (mine.has_minimum, mine.minimum) == (theirs.has_minimum, theirs.minimum)
        if mine.name == "T":
            assert set(mine.allowed_values.list.type) == TYPES
        else:
            assert mine.allowed_values == theirs.allowed_values
    for flag in ("is_stateful", "is_commutative", "is_aggregate", "allows_uninitialized_input"):
        assert getattr(ours, flag) == getattr(stock, flag), flag


@all_ops
def test_raw_op_is_tensorflows(tfb, name):
    """Parameters and defaults; and every argument is named in the help."""
    function = getattr(tfb.raw_ops, name)
    mine, theirs = inspect.signature(function), inspect.signature(getattr(tf.raw_ops, name))
    assert list(mine.parameters) == list(theirs.parameters)
    for key, parameter in mine.parameters.items():
        assert parameter.default == theirs.parameters[key].default, key
    op = op_def_registry.get(name)
    for argument in (*op.input_arg, *op.output_arg):
        assert argument.name in function.__doc__, argument.name


@all_ops
def test_both_names_have_cpu_kernels(tfb, name):
    """For every type, and no second kernel for any of them."""
    del tfb
    found = {}
    for full_name in (name, f"BlockRNN>{name}"):
        registered = kernels.get_registered_kernels_for_op(full_name).kernel
        on_cpu = [k for k in registered if k.device_type == "CPU"]
        types = []
        for kernel in on_cpu:
            constraints = {c.name: list(c.allowed_values.list.type) for c in kernel.constraint}
            types.append(
                tuple(map(tuple, (constraints.get("T", sorted(TYPES)), constraints.get("S", ()))))
            )
        assert len(set(types)) == len(types), full_name
        assert {t for kinds, _ in types for t in kinds} == TYPES, full_name
        found[full_name] = sorted(types)
    assert len({str(v) for v in found.values()}) == 1


def test_outputs_are_the_same_namedtuples(tfb):
    for version in (1, 2, 3):
        call = Call(Network("lstm", 1, 1, 3, 4), version=version)
        tensors = call.tensors(call.random("float"))
        runs = [call.forward(raw_ops, tensors) for raw_ops in (tfb.raw_ops, tf.raw_ops)]
        backs = [
            call.backward(raw_ops, tensors, runs[0], call.cotangents("float"))
            for raw_ops in (tfb.raw_ops, tf.raw_ops)
        ]
        for ours, stock in (runs, backs):
            assert (type(ours).__name__, ours._fields) == (type(stock).__name__, stock._fields)
