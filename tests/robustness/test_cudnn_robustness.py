"""The cuDNN RNN ops: malformed calls, reserve spaces, huge dims, equal bits, load, memory."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from helpers import (
    children,
    compare,
    cudnn_ops,
    cudnn_params_perturbation,
    cudnn_perturbation,
    cudnn_reserve,
)
from helpers.cudnn_ops import Call
from helpers.programs import cudnn_child, cudnn_params_perturbation_child, cudnn_perturbation_child
from helpers.reference.stack import Network

MAX_CRASHES = 5
modes = pytest.mark.parametrize("mode", cudnn_ops.MODES)


def _made(child, what, tmp_path):
    """Counts of a child's calls, none of which went wrong; after a crash another child goes on."""
    progress = tmp_path / "progress"
    first, crashes = 0, []
    total, problems = dict.fromkeys(("calls", "refused", "accepted", "problems"), 0), []
    while len(crashes) < MAX_CRASHES:
        program = child.__file__
        result = children.run_python([program, what, str(first), str(progress)])
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


@pytest.mark.types
@pytest.mark.parametrize("ops", [cudnn_ops.FORWARD, cudnn_ops.BACKPROP], ids=["forward", "back"])
def test_malformed_calls_are_refused(tfb, tmp_path, ops):
    """By both names: every argument, eagerly and in graphs of known and of unknown shapes.

    Among them CVE-2021-41221.
    """
    del tfb
    for made in cudnn_perturbation.REPRODUCERS.values():
        assert cudnn_perturbation.meant(made) is None, "not a malformed call"
    total = _made(cudnn_perturbation_child, ",".join(["reproducers", *ops.values()]), tmp_path)
    # The test itself: there were calls, and legal ones among them, which were computed.
    assert total["calls"] >= 4000, total
    assert total["accepted"] >= 200, total
    assert total["refused"] > 0.8 * total["calls"], total


@pytest.mark.types
def test_malformed_calls_on_parameters_are_refused(tfb, tmp_path):
    del tfb
    ops = ",".join(cudnn_params_perturbation.OPS)
    total = _made(cudnn_params_perturbation_child, ops, tmp_path)
    assert total["calls"] >= 4000, total
    assert total["accepted"] >= 200, total
    assert total["refused"] > 0.8 * total["calls"], total


def test_params_of_the_wrong_size_say_what_they_are_made_of(tfb):
    call = Call(Network("lstm", 2, 2, 3, 4, 2))
    for raw_ops in (tfb.raw_ops, tf.raw_ops):
        tensors = call.tensors(call.random("float"))
        tensors["params"] = tensors["params"][1:]
        size = call.net.params_size()
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            call.forward(raw_ops, tensors)
        message = error.value.message
        for part in (f"[{size}]", f"got [{size - 1}]", "H = 4", "P = 2", "I = 3", "2*2"):
            assert part in message, (part, message)


def _run_child(*arguments, **extra):
    program = str(children.PROGRAMS / "cudnn_child.py")
    result = children.run_python([program, *map(str, arguments)], timeout=300, **extra)
    out = children.assert_ok(result, f"{arguments} {extra}")
    return json.loads(out.strip().splitlines()[-1])


@pytest.mark.types
def test_children_of_1_2_and_8_threads(tfb):
    """The same bits and masks, many callers at once, calls that stop, and what may crash.

    One child for each size of the pool does all of it. A deadlock is a timeout.
    """
    del tfb
    checks = {
        1: ("in_data_map", "cancellation"),
        2: ("load", "reserve", "huge"),
        8: ("load", "in_data_map", "cancellation"),
    }
    found = {k: _run_child(k, "bits", "masks", *more) for k, more in checks.items()}
    want = found[1]["bits"]
    assert len(want) == len(cudnn_child.bit_calls()) * len(cudnn_child.DTYPES)
    assert len(set(want.values())) == len(want), "digests that cannot tell calls apart"
    for threads in (2, 8):
        differing = [k for k, v in want.items() if found[threads]["bits"][k] != v]
        assert not differing, f"1 and {threads} threads differ: {differing[:10]}"
    masks = [f["masks"] for f in found.values()]
    assert len({m["seeded"] for m in masks}) == 1, "the same seeds, other masks"
    assert len({m["unseeded"] for m in masks}) == len(masks), "no seeds, but the same mask"
    # Wrong, truncated, corrupt and other ops' reserve spaces; dims past 32 bits.
    count = len(cudnn_reserve.reserve_calls())
    assert found[2]["reserve"]["foreign"] == count * (count - 1)
    assert found[2]["reserve"]["bytes"] >= 2 * 100
    assert found[2]["huge"] > 40


# By position, plainest first, since what there is depends on the machine.
@pytest.mark.isa
@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_numbers_of_each_instruction_set(tfb, position):
    available = tfb.build_info()["cpu_isas_available"]
    if position >= len(available):
        pytest.skip(f"not run: this processor runs only {', '.join(available)}")
    isa = available[position]
    if isa == tfb.build_info()["cpu_isa"]:
        pytest.skip(f"not run again: {isa} is what the other tests use")
    assert _run_child(2, "numbers", TF_BLOCKRNN_CPU_ISA=isa)["numbers"] == isa


@pytest.mark.types
def test_too_little_memory_is_resource_exhausted(tfb):
    """Never other numbers and never an abort; outputs and scratch both run short."""
    del tfb
    outcomes = children.with_little_memory("stacks")
    assert len(outcomes) == 3 * 3
    for call, counts in outcomes.items():
        assert counts.get("no scratch", 0) >= 1, (call, counts)
    assert sum(counts.get("no output", 0) for counts in outcomes.values()) >= 5, outcomes


def _buffers(function, tensors):
    """(name, outputs) for the same numbers in every kind of buffer that TensorFlow has."""
    whole = {k: v for k, v in tensors.items() if k == "sequence_lengths"}
    tensors = {k: v for k, v in tensors.items() if k not in whole}
    zero = tf.zeros([], tf.float32)
    variables = {k: tf.Variable(v) for k, v in tensors.items()}

    # Each argument is the result of another op and read by nothing else: such a buffer may be
    # given on to an output. The addend comes from outside, so it cannot be folded away.
    @tf.function
    def temporaries(values, addend):
        return function({**whole, **{k: v + addend for k, v in values.items()}})

    # Parts of a larger buffer, which need not be aligned as a whole tensor is.
    @tf.function
    def slices(values):
        doubled = {k: tf.concat([v[:1], v], axis=0) for k, v in values.items()}
        return function({**whole, **{k: v[1:] for k, v in doubled.items()}})

    yield "arguments", tf.function(function)({**whole, **tensors})
    yield "variables", tf.function(lambda: function({**whole, **variables}))()
    yield "temporaries", temporaries(tensors, zero)
    yield "slices", slices(tensors)
    yield "eager temporaries", function({**whole, **{k: v + zero for k, v in tensors.items()}})


@modes
def test_buffers_do_not_change_the_bits(tfb, mode):
    call = Call(Network(mode, 2, 2, 17, 33), 4, 9, (4, 0, 3, 1, 4, 2, 4, 4, 1))
    tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")
    before = {k: compare.bits(v) for k, v in tensors.items()}
    outputs = call.forward(tfb.raw_ops, tensors)
    want = cudnn_ops.bits(outputs)
    for name, got in _buffers(lambda t: call.forward(tfb.raw_ops, t), tensors):
        assert cudnn_ops.bits(got) == want, name
    keys = [k for k in cudnn_ops.OUTPUTS if k != "output_c" or mode == "lstm"]
    everything = {**tensors, **{k: getattr(outputs, k) for k in keys}}

    def backward(values):
        given = {k: v for k, v in values.items() if k in tensors}
        replaced = outputs._replace(**{k: values[k] for k in keys})
        return call.backward(tfb.raw_ops, given, replaced, cotangents)

    want = cudnn_ops.bits(backward(everything))
    for name, got in _buffers(backward, everything):
        assert cudnn_ops.bits(got) == want, name
    after = {k: compare.bits(v) for k, v in tensors.items()}
    assert after == before, "an argument was written"


@modes
def test_one_tensor_as_many_arguments(tfb, mode):
    """The same tensor may be both states and all their gradients, and the output its own."""
    call = Call(Network(mode, 1, 1, 5, 5), 3, 4)
    tensors = call.tensors(call.random("float"))
    shared = tensors["input_h"]
    tensors["input_c"] = shared
    outputs = call.forward(tfb.raw_ops, tensors)
    copies = {k: tf.identity(v) for k, v in tensors.items()}
    assert cudnn_ops.bits(call.forward(tfb.raw_ops, copies)) == cudnn_ops.bits(outputs)
    cotangents = [outputs.output.numpy(), shared.numpy(), outputs.output_c.numpy()]
    apart = call.backward(tfb.raw_ops, copies, outputs, cotangents)
    together = getattr(tfb.raw_ops, cudnn_ops.BACKPROP[3])(
        **tensors, **outputs._asdict(), **call.attrs(), output_backprop=outputs.output,
        output_h_backprop=shared, output_c_backprop=outputs.output_c,
    )  # fmt: skip
    assert cudnn_ops.bits(together) == cudnn_ops.bits(apart)
