"""Whole-sequence ops: malformed calls, huge dims, equal bits, many callers, cancellation."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    block_cells,
    built_graphs,
    children,
    compare,
    perturbation,
    run_modes,
    sequence_functions,
    sequence_ops,
    sequence_perturbation,
    sequence_variants,
)
from helpers.programs import masked_perturbation_child, sequence_child, sequence_perturbation_child

MAX_CRASHES = 5
OPS = sequence_ops.OPS
# The checks of sequence_child.py whose digests must be the same in all pools.
BITS = ("bits", "function_bits", "option_bits")
all_ops = pytest.mark.parametrize("op", OPS.values(), ids=OPS)
cases = pytest.mark.parametrize(
    "op, attrs",
    [pytest.param(o, a, id=f"{o.name}-{n}") for n, (o, a) in enumerate(sequence_ops.op_cases())],
)


each_mode = pytest.mark.parametrize(
    "modes",
    [perturbation.EAGER, pytest.param(perturbation.GRAPHS, marks=pytest.mark.types)],
    ids=["eager", "in graphs"],
)


def _made(child, what, tmp_path, modes=perturbation.MODES):
    """Counts and problems of a child's calls; after a crash another child goes on."""
    progress = tmp_path / "progress"
    first, crashes = 0, []
    total, problems = dict.fromkeys(("calls", "refused", "accepted", "problems"), 0), []
    while len(crashes) < MAX_CRASHES:
        result = children.run_python(
            [
                child.__file__,
                what,
                str(first),
                str(progress),
            ],
            **{perturbation.ONLY_MODES: ",".join(modes)},
        )
        if result.returncode == 0:
            outcome = json.loads(result.stdout.strip().splitlines()[-1])
            problems += outcome["problems"]
            for key, count in outcome["counts"].items():
                total[key] += count
            break
        assert progress.exists() and progress.read_text(), result.stderr[-3000:]
        number = int(progress.read_text())
        call = child.describe(what, number)
        crashes.append(f"{call} ended with {result.returncode}: {result.stderr[-300:]}")
        first = number + 1
    assert not crashes, f"{len(crashes)} crashes:\n" + "\n".join(crashes)
    assert not problems, f"{total['problems']} of {total}:\n" + "\n".join(problems)
    return total


@each_mode
@pytest.mark.parametrize("name", OPS)
def test_malformed_calls_are_refused(tfb, tmp_path, name, modes):
    del tfb
    total = _made(sequence_perturbation_child, name, tmp_path, modes)
    # The test itself: there were calls, and legal ones among them, which were computed.
    assert total["calls"] >= (400 if modes == perturbation.EAGER else 600), total
    assert total["accepted"] >= (5 if modes == perturbation.EAGER else 15), total
    assert total["refused"] > 0.9 * total["calls"], total


@each_mode
@pytest.mark.parametrize("what", ["LSTM", "GRU", "RNN"])
def test_malformed_calls_with_masks_are_refused(tfb, tmp_path, what, modes):
    """The ops under tf_blockrnn.lstm and gru: what is optional, and lengths out of range, too."""
    del tfb
    total = _made(masked_perturbation_child, what, tmp_path, modes)
    assert total["calls"] >= (1000 if modes == perturbation.EAGER else 2000), total
    assert total["accepted"] >= (30 if modes == perturbation.EAGER else 70), total
    assert total["refused"] > 0.9 * total["calls"], total


def test_reproducers_are_refused(tfb, tmp_path):
    """Public reports of crashes in TensorFlow's ops; their messages are checked as well."""
    del tfb
    for name, attrs, call in sequence_perturbation.REPRODUCERS.values():
        assert not sequence_ops.is_legal(OPS[name], call.shapes, attrs, call.valid)
    total = _made(sequence_perturbation_child, "reproducers", tmp_path)
    count = len(sequence_perturbation.REPRODUCERS) * len(perturbation.MODES)
    assert (total["calls"], total["refused"]) == (count, count)


def _call_zeros(raw_ops, op, shapes, valid, mode):
    tensors = {k: built_graphs.zeros(v) for k, v in shapes.items() if k != "seq_len_max"}
    tensors["seq_len_max"] = tf.constant(valid, tf.int64)
    function = getattr(raw_ops, op.name)
    return built_graphs.call_or_trace(mode, function, tensors, op.attr_cases[-1])


@all_ops
@pytest.mark.parametrize("mode", perturbation.MODES)
def test_many_empty_steps_return_at_once(tfb, op, mode):
    """2^31 steps of no rows or no units: nothing to do, and a loop over them would take long."""
    sizes = (2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**60)
    for steps in run_modes.fewer(mode, sizes, slice(2, 4)):  # XLA dies of 2^60, of any op
        for dims in ((steps, 0, 2, 3), (steps, 0, 0, 0), (steps, 2, 0, 0)):
            begin = time.perf_counter()
            got = _call_zeros(tfb.raw_ops, op, op.shapes(dims), steps, mode)
            for name, shape in op.output_shapes(dims).items():
                assert getattr(got, name).shape.as_list() == list(shape), (dims, name)
                if max(shape) < 2**41:  # NumPy takes no more
                    assert not np.any(getattr(got, name).numpy())
            assert time.perf_counter() - begin < 3, dims


@all_ops
@pytest.mark.parametrize("mode", perturbation.MODES)
def test_dims_are_not_cut_to_32_bits(tfb, op, mode):
    """2^32 + 1 rows or steps are not 1, nor are 2^32 none."""
    for huge, small in run_modes.fewer(mode, ((2**32 + 1, 1), (2**32, 0)), slice(1)):
        for symbol, dims in (("T", (huge, 0, 2, 3)), ("B", (1, huge, 0, 0))):
            legal = op.shapes(dims)
            for argument, expressions in op.inputs.items():
                if symbol not in expressions or argument == "x":
                    continue
                changed = [
                    small if e == symbol else d
                    for e, d in zip(expressions, legal[argument], strict=True)
                ]
                with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=op.name):
                    _call_zeros(tfb.raw_ops, op, {**legal, argument: tuple(changed)}, 1, mode)
    # The length itself, of a sequence of one step.
    legal = op.shapes((1, 2, 3, 4))
    for valid in (2**32, 2**32 + 1, -(2**32) + 1, 2**63 - 1, -(2**63)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"{op.name}.*seq_len_max must"):
            _call_zeros(tfb.raw_ops, op, legal, valid, mode)


@all_ops
@pytest.mark.parametrize("mode", perturbation.MODES[:3])  # XLA itself dies of such sizes
def test_overflowing_sizes_are_refused(tfb, op, mode):
    """Dims in which 2H, 4H or I + H leaves int64, and would agree if it wrapped around."""
    for i, h in ((0, 2**62), (0, 2**61), (0, 2**63 - 1), (2**62, 2**62), (2**63 - 1, 1)):
        if op in sequence_ops.GRU_OPS and h == 2**61:
            continue  # 2H fits
        values = {"T": 2, "B": 0, "I": i, "H": h, "P": h}
        values |= {"2H": 2 * h, "4H": 4 * h, "I+H": i + h}
        shapes = {}
        for name, expressions in op.inputs.items():
            # What int64 makes of it; a negative dim cannot be given at all.
            dims = [v if (v := values[e] % 2**64) < 2**63 else 0 for e in expressions]
            # Tensors of so many elements do not exist; without rows they do.
            if dims and 0 not in dims:
                dims[0] = 0
            shapes[name] = tuple(dims)
        assert not sequence_ops.is_legal(op, shapes, op.attr_cases[-1])
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match=op.name):
            _call_zeros(tfb.raw_ops, op, shapes, 1, mode)


def _run_child(*arguments, **extra):
    program = str(children.PROGRAMS / "sequence_child.py")
    result = children.run_python([program, *map(str, arguments)], **extra)
    out = children.assert_ok(result, f"{arguments} {extra}")
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.types
def test_threads_bits_load_and_cancellation(tfb):
    """Pools of 1, 2 and 8 threads: the same bits, many callers at once, and calls that stop.

    One child for each pool does all of it. A deadlock is a timeout.
    """
    del tfb
    digests = {}
    for threads, more in ((1, ("load", "loops", "cancellation")), (2, ()), (8, ("load",))):
        found = _run_child(threads, *BITS, *more, timeout=300)
        digests[threads] = {k: v for check in BITS for k, v in found[check].items()}
        assert set(more) <= set(found)
        for name, count in found.items():
            if name in ("load", "loops"):
                assert count > 0, name
    calls = len(sequence_ops.op_cases()) * len(block_cells.DTYPES) * len(sequence_child.DIMS)
    calls += len(sequence_functions.FUNCTIONS) * 2 * (len(sequence_child.DIMS) - 1)
    calls += len(sequence_variants.VARIANTS) * 2 * (len(sequence_child.DIMS) - 2)
    assert len(digests[1]) == calls
    assert len(set(digests[1].values())) == calls, "digests that cannot tell calls apart"
    for threads in (2, 8):
        differing = [k for k, v in digests[1].items() if digests[threads][k] != v]
        assert not differing, f"1 and {threads} threads differ: {differing[:10]}"


def test_cancellation_with_many_threads(tfb):
    del tfb
    found = _run_child(4, "cancellation", timeout=300)["cancellation"]
    assert len(found) == len(sequence_child.CANCELLED)


# By position, plainest first, since what there is depends on the machine. The plainest of a build
# for this machine is compiled another way than that of a build for all.
@pytest.mark.parametrize(
    "position",
    [
        pytest.param(0, marks=pytest.mark.core, id="fallback"),
        *(pytest.param(position, marks=pytest.mark.isa) for position in range(4)),
    ],
)
def test_numbers_of_each_instruction_set(tfb, position):
    available = tfb.build_info()["cpu_isas_available"]
    if position >= len(available):
        pytest.skip(f"not run: this processor runs only {', '.join(available)}")
    isa = available[position]
    if isa == tfb.build_info()["cpu_isa"]:
        pytest.skip(f"not run again: {isa} is what the other tests use")
    found = _run_child(2, "numbers", TF_BLOCKRNN_CPU_ISA=isa)
    assert (found["isa"], found["numbers"]) == (isa, len(OPS))


def _bits(outputs):
    return [compare.bits(value) for value in outputs]


def _buffers(function, tensors):
    """(name, outputs) for the same numbers in every kind of buffer that TensorFlow has."""
    zero = tf.zeros([], tensors["x"].dtype)
    variables = {k: tf.Variable(v) for k, v in tensors.items()}

    # Each argument is the result of another op and read by nothing else: such a buffer may be
    # given on to an output. The addend comes from outside, so it cannot be folded away.
    @tf.function
    def temporaries(values, addend):
        return function({k: v + addend for k, v in values.items()})

    # Parts of a larger buffer, which need not be aligned as a whole tensor is.
    @tf.function
    def slices(values):
        doubled = {k: tf.concat([v[:1], v], axis=0) for k, v in values.items()}
        return function({k: v[1:] for k, v in doubled.items()})

    yield "arguments", tf.function(function)(tensors)
    yield "variables", tf.function(lambda: function(variables))()
    yield "temporaries", temporaries(tensors, zero)
    for name in tensors:

        @tf.function
        def one_temporary(values, addend, name=name):
            return function({**values, name: values[name] + addend})

        yield f"{name} a temporary", one_temporary(tensors, zero)
    yield "slices", slices(tensors)
    yield "eager temporaries", function({k: v + zero for k, v in tensors.items()})


@pytest.mark.types
@cases
@pytest.mark.parametrize("dtype", ["bfloat16", "float"])
def test_buffers_do_not_change_the_bits(tfb, op, attrs, dtype):
    inputs = sequence_ops.random_inputs(op, (4, 9, 17, 32), block_cells.numpy_type(dtype), valid=3)
    tensors = sequence_ops.tensors_of(inputs)
    valid = tensors.pop("seq_len_max")

    def function(values):
        return getattr(tfb.raw_ops, op.name)(seq_len_max=valid, **values, **attrs)

    want = _bits(sequence_ops.call(tfb.raw_ops, op, inputs, attrs))
    for name, outputs in _buffers(function, tensors):
        assert _bits(outputs) == want, name


@pytest.mark.types
@pytest.mark.parametrize("name", sequence_functions.FUNCTIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float"])
def test_buffers_do_not_change_the_bits_of_functions(tfb, name, dtype):
    """The ops under tf_blockrnn.lstm and gru with a mask and lengths, and their Grad ops."""
    function, dims = sequence_functions.FUNCTIONS[name], (4, 9, 17, 32)
    inputs = sequence_functions.random_inputs(function, dims, block_cells.numpy_type(dtype))
    mask, lengths = sequence_functions.patterns(dims)["lengths and holes"]
    options = {"mask": tf.constant(mask), "lengths": tf.constant(lengths)}

    def compute(values):
        with tf.GradientTape() as tape:
            tape.watch(values)
            outputs = sequence_functions.call(tfb, function, values, time_major=True, **options)
        return [*outputs, *tape.gradient(outputs, values).values()]

    tensors = {k: tf.constant(v) for k, v in inputs.items()}
    want = _bits(compute(tensors))
    for kind, outputs in _buffers(compute, tensors):
        assert _bits(outputs) == want, kind


@cases
def test_inputs_are_not_written(tfb, op, attrs):
    """A buffer that was handed on to an output would show in the arguments, too."""
    inputs = sequence_ops.random_inputs(op, (4, 9, 17, 32), np.float32, valid=3)
    tensors = sequence_ops.tensors_of(inputs)
    getattr(tfb.raw_ops, op.name)(**tensors, **attrs)
    for name, value in inputs.items():
        assert compare.bits(tensors[name]) == compare.bits(value), name


@pytest.mark.parametrize("name", ["BlockLSTMGrad", "BlockGRUGrad"])
def test_one_tensor_as_many_arguments(tfb, name):
    """The same tensor may be every residual and both incoming gradients at once."""
    op = OPS[name]
    inputs = sequence_ops.random_inputs(op, (4, 5, 8, 8), np.float32)
    apart = {k: np.copy(inputs["h"]) if np.ndim(v) == 3 else v for k, v in inputs.items()}
    tensors = sequence_ops.tensors_of(apart)
    shared = tf.constant(inputs["h"])
    together = {k: shared if v.shape.rank == 3 else v for k, v in tensors.items()}
    function, attrs = getattr(tfb.raw_ops, name), op.attr_cases[-1]
    assert _bits(function(**together, **attrs)) == _bits(function(**tensors, **attrs))


@all_ops
def test_static_shapes_are_inferred(tfb, op):
    """As much of the outputs' shapes as the inputs tell is known when a graph is built."""
    attrs, dims = op.attr_cases[-1], (3, 2, 5, 4)

    @tf.function
    def graph(arguments):
        return getattr(tfb.raw_ops, op.name)(**arguments, **attrs)

    for hidden in ((), ("T",), ("T", "B")):
        specs = {
            k: tf.TensorSpec(
                [None if e in hidden else d for e, d in zip(op.inputs[k], v, strict=True)],
                tf.int64 if k == "seq_len_max" else tf.bfloat16,
            )
            for k, v in op.shapes(dims).items()
        }
        outputs = graph.get_concrete_function(specs).structured_outputs
        for name, expressions in op.outputs.items():
            want = sequence_ops.evaluate(expressions, dims)
            want = [None if e in hidden else d for e, d in zip(expressions, want, strict=True)]
            assert getattr(outputs, name).shape.as_list() == want, name
            assert getattr(outputs, name).dtype == tf.bfloat16


@all_ops
def test_raw_op_names_everything_and_gives_a_namedtuple(tfb, op):
    function = getattr(tfb.raw_ops, op.name)
    for argument in (*op.inputs, *op.outputs):
        assert argument in function.__doc__, argument
    inputs = sequence_ops.tensors_of(sequence_ops.random_inputs(op, (2, 3, 4, 5), np.float32))
    attrs = op.attr_cases[-1]
    with pytest.raises(TypeError):
        function(*inputs.values(), **attrs)
    got = function(**inputs, **attrs)
    assert (type(got).__name__, got._fields) == (op.name, tuple(op.outputs))
    if op.stock:
        stock = getattr(tf.raw_ops, op.name)(**inputs, **attrs)
        assert (type(got).__name__, got._fields) == (type(stock).__name__, stock._fields)


@pytest.mark.types
def test_too_little_memory_is_resource_exhausted(tfb):
    """Never other numbers and never an abort; outputs and scratch both run short."""
    del tfb
    outcomes = children.with_little_memory("sequences")
    assert len(outcomes) == len(OPS) + 3
    for call, counts in outcomes.items():
        assert counts.get("no output", 0) >= 1 and counts.get("no scratch", 0) >= 1, (call, counts)
