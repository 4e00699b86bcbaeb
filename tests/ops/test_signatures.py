"""The signatures of all ops: those of the op contracts, and TensorFlow's where it has the op.

The tests take what they know of an op from the op table; here the table itself is compared, with
the registry of the running TensorFlow and with what the contracts say of each argument.
"""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers import block_cells, op_table, sequence_ops
from helpers.cudnn_ops import Call
from helpers.op_table import OPS
from helpers.reference.stack import Network
from tensorflow.python.framework import kernels, op_def_registry

BLOCK_OPS = block_cells.OPS | sequence_ops.OPS
STOCK = [name for name in OPS if hasattr(tf.raw_ops, name)]
SERVED = [name for name, op in OPS.items() if op.serves_tensorflow]
TYPES = {tf.as_dtype(d).as_datatype_enum for d in block_cells.DTYPES}
all_ops = pytest.mark.parametrize("name", OPS)
stock_ops = pytest.mark.parametrize("name", STOCK)
block_ops = pytest.mark.parametrize("op", BLOCK_OPS.values(), ids=BLOCK_OPS)


# ------------------------------------------------------------------ the contracts

# What an argument is, whatever the op; G is the number of gates. A gradient is like what it is of.
_STEPS = "r u c i cs f o ci co h d_h cs_grad h_grad"
_BLOCK = (
    "x[T,B,I] h_prev[B,H] cs_prev[B,H] seq_len_max[] w[I+H,4H] b[4H] wci[H|?] wcf[H|?] wco[H|?] "
    "w_ru[I+H,2H] w_c[I+H,H] b_ru[2H] b_c[H] "
    "d_x[T,B,I] d_h_prev[B,H] d_c_bar[B,H] d_r_bar_u_bar[B,2H] dicfo[B,4H] "
) + " ".join(f"{name}[T,B,H]" for name in _STEPS.split())
_SEQUENCE = (
    "x[T,B,I] h_prev[B,P] cs_prev[B,H] w_x[I,GH]?I=GH w_h[P,GH] b[GH] b_x[GH] b_h[GH] "
    "peepholes[3,H]? "
    "gamma_x[GH] beta_x[GH] gamma_h[GH] beta_h[GH] gamma_c[H] beta_c[H] "
    "mask[T,B]? sequence_lengths[B]? resets[T,B]? w_p[P,H]?P=H recurrent_dropout[G,B,P]? "
    "zoneout_h[T,B,P]? zoneout_c[T,B,H]? h[T,B,P] h_last[B,P] cs_last[B,H] "
    "x_hat[K*T,B,GH] h_hat[K*T,B,GH] rstd[K*T,B,2] span_states[N] "
    "h_grad[T,B,P]? h_last_grad[B,P]? cs_last_grad[B,H]? cs_grad[K*T,B,H]? "
) + " ".join(f"{name}[K*T,B,H]" for name in "i cs f o ci r u c hc".split())
_CUDNN = (
    "input[T,B,I] input_h[L*D,B,P] input_c[L*D,B,H]! params[?] sequence_lengths[B] "
    "output[T,B,D*P] output_h[L*D,B,P] output_c[L*D,B,H]! output_backprop[T,B,D*P] "
    "output_h_backprop[L*D,B,P] output_c_backprop[L*D,B,H]! reserve_space[?] host_reserved[0] "
    "num_layers[] num_units[] input_size[] params_size[1] weights[*] biases[*]"
)
_TIME = (("T",), ("K*T",), ("L*D",))
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _contract(name: str) -> dict[str, op_table.Argument]:
    """Every argument that an op of this family may have."""
    if name.startswith("Cudnn"):
        text = _CUDNN
    elif "Sequence" in name:
        gates = next(count for kind, count in _GATES.items() if kind in name)
        text = _SEQUENCE.replace("GH", f"{gates}H" if gates > 1 else "H").replace("G,", f"{gates},")
        text = text if name.startswith("LSTM") else text.replace("P", "H")
        if name.endswith("Grad") and not name.startswith("LayerNorm"):
            # Read with recompute alone.
            text = re.sub(r"\b(b(_x|_h)?\[\w+\])", r"\1?K=1", text)
    else:
        text = _BLOCK if name.startswith("Block") else _BLOCK.replace("T,", "")
    return {one.name: one for one in map(op_table.argument, text.split())}


def _in_each_layout(dims, op) -> tuple:
    """Time-major, and batch-major where the op has a choice."""
    if op.alternative_attr != "time_major" or dims is None or dims[:1] not in _TIME:
        return (dims,)
    return dims, (dims[1], dims[0], *dims[2:])


@all_ops
def test_inputs_are_those_of_the_contracts(name):
    op, contract = OPS[name], _contract(name)
    for argument in op.inputs.values():
        want = contract[argument.name]
        alternatives = want.alternatives
        if len(alternatives) == 1:
            alternatives = _in_each_layout(alternatives[0], op)
        assert argument.alternatives == alternatives, argument.name
        for mark in ("optional", "left_out_if", "cell_state"):
            assert getattr(argument, mark) == getattr(want, mark), (argument.name, mark)
        of_host = ("sequence_lengths", "resets", "host_reserved")
        on_host = argument.dims == () or argument.name in of_host
        assert argument.on_host == on_host, argument.name


@all_ops
def test_outputs_are_those_of_the_contracts(name):
    """A gradient is like what it is of, and a state like the one before it."""
    op, contract = OPS[name], _contract(name)
    for argument in op.outputs.values():
        of = re.sub("_(grad|backprop)$", "", argument.name)
        if argument.name == "reserve_space":
            assert len(argument.dims) == 1  # of a size of its own
            continue
        if argument.same_as:
            assert argument.same_as == re.sub("^output_", "input_", of)
            continue
        own = contract.get(argument.name)
        want = own or contract[of]
        assert not (own is None and want.optional and want.left_out_if != ("K", "1")), "not alike"
        alternatives = _in_each_layout(want.dims, op)
        if own is None and len(want.alternatives) > 1:
            alternatives = want.alternatives
        assert argument.alternatives == alternatives, argument.name


# ------------------------------------------------------------------ the registry


def _types(arguments):
    return [
        (a.name, a.type, a.type_attr, a.number_attr, a.type_list_attr, a.is_ref) for a in arguments
    ]


@all_ops
def test_the_registry_is_the_table(tfb, name):
    """What is loaded is what the table was read from; all types in the same four."""
    registered, op = op_def_registry.get(f"BlockRNN>{name}"), OPS[name]
    for table, arguments in (
        (op.inputs, registered.input_arg),
        (op.outputs, registered.output_arg),
    ):
        assert [a.name for a in arguments] == list(table)
        for a in arguments:
            kind = a.type_attr or tf.as_dtype(a.type).name
            assert table[a.name].type == f"{a.number_attr}*{kind}".removeprefix("*"), a.name
    assert {a.name for a in registered.attr} == op.attrs.keys()
    (of_type,) = (a for a in registered.attr if a.name == "T")
    assert set(of_type.allowed_values.list.type) == TYPES
    assert (
        registered.is_stateful == name.startswith(("CudnnRNNV", "CudnnRNNB")) or name == "CudnnRNN"
    )
    parameters = inspect.signature(getattr(tfb.raw_ops, name)).parameters
    assert set(op.inputs) <= parameters.keys() <= {*op.inputs, *op.attrs, "name"}
    kinds = {p.kind for key, p in parameters.items() if key != "name"}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    for argument in (*op.inputs, *op.outputs):
        assert argument in getattr(tfb.raw_ops, name).__doc__, argument


def test_which_ops_tensorflow_has():
    ours = set(BLOCK_OPS) - set(STOCK)
    assert ours == {"BlockGRU", "BlockGRUGrad"}
    assert set(SERVED) == {n for n in dir(tf.raw_ops) if n.startswith("CudnnRNN")}
    assert len(SERVED) == 11 and set(STOCK) == {*BLOCK_OPS, *SERVED} - ours


@stock_ops
def test_signature_is_tensorflows_but_for_wider_types(tfb, name):
    """Names, types, order, defaults and flags, from the running TensorFlow's registry."""
    ours, stock = op_def_registry.get(f"BlockRNN>{name}"), op_def_registry.get(name)
    assert _types(ours.input_arg) == _types(stock.input_arg)
    assert _types(ours.output_arg) == _types(stock.output_arg)
    assert [a.name for a in ours.attr] == [a.name for a in stock.attr]
    for mine, theirs in zip(ours.attr, stock.attr, strict=True):
        assert (mine.type, mine.default_value) == (theirs.type, theirs.default_value)
        assert mine.HasField("default_value") == theirs.HasField("default_value")
        assert (mine.has_minimum, mine.minimum) == (theirs.has_minimum, theirs.minimum)
        if mine.name == "T":
            assert set(theirs.allowed_values.list.type) <= TYPES
        else:
            assert mine.allowed_values == theirs.allowed_values
    for flag in (
        "is_stateful",
        "is_commutative",
        "is_aggregate",
        "allows_uninitialized_input",
        "is_distributed_communication",
    ):
        assert getattr(ours, flag) == getattr(stock, flag), flag
    mine, theirs = (inspect.signature(getattr(raw, name)) for raw in (tfb.raw_ops, tf.raw_ops))
    assert list(mine.parameters) == list(theirs.parameters)
    for key, parameter in mine.parameters.items():
        assert parameter.default == theirs.parameters[key].default, key


@pytest.mark.parametrize("name", SERVED)
def test_both_names_have_cpu_kernels(tfb, name):
    """For every type, and no second kernel for any of them."""
    del tfb
    found = {}
    for full_name in (name, f"BlockRNN>{name}"):
        registered = kernels.get_registered_kernels_for_op(full_name).kernel
        types = []
        for kernel in (k for k in registered if k.device_type == "CPU"):
            constraints = {c.name: list(c.allowed_values.list.type) for c in kernel.constraint}
            kinds = (constraints.get("T", sorted(TYPES)), constraints.get("S", ()))
            types.append(tuple(map(tuple, kinds)))
        assert len(set(types)) == len(types), full_name
        assert {t for kinds, _ in types for t in kinds} == TYPES, full_name
        found[full_name] = sorted(types)
    assert len({str(v) for v in found.values()}) == 1


# ---------------------------------------------------------------- results of calls


def _assert_same_namedtuples(results):
    assert len({(type(result).__name__, result._fields) for result in results}) == 1


@block_ops
def test_outputs_are_the_same_namedtuples(tfb, op):
    inputs = block_cells.random_inputs(op, (2, 3, 4, 5)[-len(op.sizes) :], np.float32)
    attrs = op.attr_cases[-1]
    with pytest.raises(TypeError):
        getattr(tfb.raw_ops, op.name)(*inputs.values(), **attrs)
    got = block_cells.call(tfb.raw_ops, op, inputs, attrs)
    assert (type(got).__name__, got._fields) == (op.name, tuple(op.outputs))
    graph = block_cells.call(tfb.raw_ops, op, inputs, attrs, "graph")
    stock = [block_cells.call(tf.raw_ops, op, inputs, attrs)] if op.stock else []
    _assert_same_namedtuples([got, graph, *stock])


def test_outputs_of_stacks_are_the_same_namedtuples(tfb):
    for version in (1, 2, 3):
        call = Call(Network("lstm", 1, 1, 3, 4), version=version)
        tensors = call.tensors(call.random("float"))
        runs = [call.forward(raw_ops, tensors) for raw_ops in (tfb.raw_ops, tf.raw_ops)]
        _assert_same_namedtuples(runs)
        _assert_same_namedtuples(
            call.backward(raw_ops, tensors, runs[0], call.cotangents("float"))
            for raw_ops in (tfb.raw_ops, tf.raw_ops)
        )


@block_ops
def test_static_shapes_are_inferred(tfb, op):
    """As much of the outputs' shapes as the inputs tell is known when a graph is built."""
    attrs, dims = op.attr_cases[-1], (3, 2, 5, 4)[-len(op.sizes) :]
    graph = tf.function(lambda arguments: getattr(tfb.raw_ops, op.name)(**arguments, **attrs))

    def known(expressions, hidden):
        sizes = block_cells.evaluate(expressions, dims)
        return [None if e in hidden else d for e, d in zip(expressions, sizes, strict=True)]

    for hidden in ("", "T", "B", "TB"):
        specs = {
            k: tf.TensorSpec(known(v, hidden), tf.int64 if k == "seq_len_max" else tf.bfloat16)
            for k, v in op.inputs.items()
        }
        outputs = graph.get_concrete_function(specs).structured_outputs
        for name, expressions in op.outputs.items():
            assert getattr(outputs, name).shape.as_list() == known(expressions, hidden), name
            assert getattr(outputs, name).dtype == tf.bfloat16


def test_a_dim_known_from_one_argument_reaches_the_outputs(tfb):
    """x alone tells the batch and b_c alone tells the units: the shape function merges them."""
    specs = {name: tf.TensorSpec(None, tf.float32) for name in block_cells.GRU.inputs}
    specs |= {"x": tf.TensorSpec([7, None]), "b_c": tf.TensorSpec([5])}
    graph = tf.function(lambda given: tfb.raw_ops.GRUBlockCell(**given))
    assert graph.get_concrete_function(specs).structured_outputs.h.shape.as_list() == [7, 5]
