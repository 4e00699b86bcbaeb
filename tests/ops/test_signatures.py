"""Our ops carry TensorFlow's signatures: compared with the registry of the running TensorFlow."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from helpers import block_cells, sequence_ops

OP_NAMES = tuple(block_cells.OPS)
# Whole sequences, too; the rest of their interface is tested beside them.
STOCK_NAMES = (*OP_NAMES, *(name for name, op in sequence_ops.OPS.items() if op.stock))


@pytest.fixture(scope="module")
def registered(tf, tfb):
    """The op as the running registry has it, by name."""
    del tf, tfb
    from tensorflow.python.framework import op_def_registry

    def get(name):
        op_def = op_def_registry.get(name)
        assert op_def is not None, f"{name} is not registered"
        return op_def

    return get


def _arguments(arguments):
    return [
        (a.name, a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in arguments
    ]


@pytest.mark.parametrize("name", STOCK_NAMES)
def test_inputs_and_outputs_are_tensorflows(registered, name):
    ours, stock = registered(f"BlockRNN>{name}"), registered(name)
    assert _arguments(ours.input_arg) == _arguments(stock.input_arg)
    assert _arguments(ours.output_arg) == _arguments(stock.output_arg)


@pytest.mark.parametrize("name", STOCK_NAMES)
def test_attrs_are_tensorflows_but_for_wider_types(tf, registered, name):
    ours, stock = registered(f"BlockRNN>{name}"), registered(name)
    assert [a.name for a in ours.attr] == [a.name for a in stock.attr]
    for mine, theirs in zip(ours.attr, stock.attr, strict=True):
        assert mine.type == theirs.type
        assert mine.HasField("default_value") == theirs.HasField("default_value")
        assert mine.default_value == theirs.default_value
        assert (mine.has_minimum, mine.minimum) == (theirs.has_minimum, theirs.minimum)
        if mine.name == "T":
            ours_types = set(mine.allowed_values.list.type)
            assert ours_types == {
                tf.as_dtype(d).as_datatype_enum for d in ("half", "bfloat16", "float", "double")
            }
            assert set(theirs.allowed_values.list.type) <= ours_types
        else:
            assert mine.allowed_values == theirs.allowed_values


@pytest.mark.parametrize("name", STOCK_NAMES)
def test_flags_are_tensorflows(registered, name):
    ours, stock = registered(f"BlockRNN>{name}"), registered(name)
    for flag in (
        "is_stateful",
        "is_commutative",
        "is_aggregate",
        "allows_uninitialized_input",
        "is_distributed_communication",
    ):
        assert getattr(ours, flag) == getattr(stock, flag), flag
    assert not ours.is_stateful


@pytest.mark.parametrize("name", STOCK_NAMES)
def test_raw_op_has_tensorflows_parameters(tf, tfb, name):
    ours = inspect.signature(getattr(tfb.raw_ops, name))
    stock = inspect.signature(getattr(tf.raw_ops, name))
    assert list(ours.parameters) == list(stock.parameters)
    for mine, theirs in zip(ours.parameters.values(), stock.parameters.values(), strict=True):
        assert mine.default == theirs.default, mine.name
        if mine.name != "name":
            assert mine.kind is inspect.Parameter.KEYWORD_ONLY, mine.name


@pytest.mark.parametrize("op, attrs", block_cells.op_cases())
def test_raw_op_is_keyword_only_and_gives_the_same_namedtuple(tf, tfb, op, attrs):
    inputs = block_cells.random_inputs(op, (2, 3, 4), np.float32)
    with pytest.raises(TypeError):
        getattr(tfb.raw_ops, op.name)(*inputs.values(), **attrs)
    ours = block_cells.call(tfb.raw_ops, op, inputs, attrs)
    stock = block_cells.call(tf.raw_ops, op, inputs, attrs)
    assert type(ours).__name__ == type(stock).__name__
    assert ours._fields == stock._fields == tuple(op.outputs)
    graph = block_cells.call(tfb.raw_ops, op, inputs, attrs, "graph")
    assert type(graph).__name__ == type(stock).__name__
    assert graph._fields == stock._fields


@pytest.mark.parametrize("op", block_cells.OPS.values(), ids=OP_NAMES)
def test_static_shapes_and_types_are_inferred(tf, tfb, op):
    """As much of the outputs' shapes as the inputs tell is known when a graph is built."""
    attrs = op.attr_cases[-1]
    dims = (2, 3, 4)
    shapes = op.shapes(dims)

    @tf.function
    def graph(arguments):
        return getattr(tfb.raw_ops, op.name)(**arguments, **attrs)

    known = {k: tf.TensorSpec(v, tf.bfloat16) for k, v in shapes.items()}
    outputs = graph.get_concrete_function(known).structured_outputs
    for name, shape in op.output_shapes(dims).items():
        assert getattr(outputs, name).shape.as_list() == list(shape), name
        assert getattr(outputs, name).dtype == tf.bfloat16

    batch_unknown = {
        k: tf.TensorSpec(
            [None if e == "B" else d for e, d in zip(op.inputs[k], v, strict=True)], tf.float32
        )
        for k, v in shapes.items()
    }
    outputs = graph.get_concrete_function(batch_unknown).structured_outputs
    for name, expressions in op.outputs.items():
        want = block_cells.evaluate(expressions, dims)
        want = [None if e == "B" else d for e, d in zip(expressions, want, strict=True)]
        assert getattr(outputs, name).shape.as_list() == want, name


def test_a_dim_known_from_one_argument_reaches_the_outputs(tf, tfb):
    """x alone tells the batch and b_c alone tells the units: the shape function merges them."""

    @tf.function
    def graph(x, h_prev, w_ru, w_c, b_ru, b_c):
        return tfb.raw_ops.GRUBlockCell(x=x, h_prev=h_prev, w_ru=w_ru, w_c=w_c, b_ru=b_ru, b_c=b_c)

    unknown = tf.TensorSpec(None, tf.float32)
    outputs = graph.get_concrete_function(
        tf.TensorSpec([7, None]), unknown, unknown, unknown, unknown, tf.TensorSpec([5])
    ).structured_outputs
    assert outputs.h.shape.rank == 2
    assert outputs.h.shape.as_list() == [7, 5]


@pytest.mark.parametrize("name", OP_NAMES)
def test_raw_op_docstring_names_every_argument(tfb, name):
    text = getattr(tfb.raw_ops, name).__doc__ or ""
    op = block_cells.OPS[name]
    for argument in (*op.inputs, *op.outputs):
        assert argument in text, argument
