"""Many threads that call compiled functions at once."""

from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow as tf
from helpers import compare, cudnn_ops, run_modes, sequence_functions
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network

DIMS = (12, 40, 24, 48)
CALLERS = 8
ROUNDS = 12


def _bits(values):
    return [compare.bits(v) for v in tf.nest.flatten(values)]


def _run_together(work):
    """work(k) of all callers, which begin at the same moment; raises what one of them raises."""
    barrier = threading.Barrier(CALLERS)

    def begin(k):
        barrier.wait()
        return work(k)

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        return list(pool.map(begin, range(CALLERS)))


def _sequence(tfb, name):
    """A compiled function with gradients, a plain one, and the arguments of each caller."""
    function = sequence_functions.PLAIN[name]

    def compute(tensors, lengths):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = sequence_functions.call(
                tfb, function, tensors, time_major=True, lengths=lengths
            )
        return outputs, tape.gradient(outputs, tensors)

    arguments = []
    for seed in range(CALLERS):
        inputs = sequence_functions.random_inputs(function, DIMS, np.float32, seed)
        lengths = np.random.default_rng(seed).integers(0, DIMS[0] + 1, DIMS[1])
        tensors = {k: tf.constant(v) for k, v in inputs.items()}
        arguments.append((tensors, tf.constant(lengths, tf.int32)))
    return run_modes.in_mode("jit", compute), compute, arguments


def test_one_function_with_different_inputs(tfb):
    compiled, plain, arguments = _sequence(tfb, "gru-after")
    want = [_bits(plain(*given)) for given in arguments]
    assert len({tuple(bits) for bits in want}) == CALLERS
    compiled(*arguments[0])

    def work(k):
        return [_bits(compiled(*arguments[k])) == want[k] for _ in range(ROUNDS)]

    assert all(map(all, _run_together(work)))


def test_different_functions_that_are_compiled_at_once(tfb):
    """The first call of each compiles it, while others compile and run."""
    calls = [_sequence(tfb, name) for name in ("lstm", "gru-before")]
    wants = [[_bits(plain(*given)) for given in arguments] for _, plain, arguments in calls]

    def work(k):
        (compiled, _, arguments), want = calls[k % 2], wants[k % 2]
        return [_bits(compiled(*arguments[k])) == want[k] for _ in range(ROUNDS)]

    assert all(map(all, _run_together(work)))


def test_an_error_does_not_disturb_other_calls(tfb):
    """Every other call of one program has lengths out of range."""
    compiled, plain, arguments = _sequence(tfb, "lstm")
    want = [_bits(plain(*given)) for given in arguments]
    wrong = tf.fill([DIMS[1]], DIMS[0] + 1)
    compiled(*arguments[0])

    def work(k):
        for number in range(ROUNDS):
            if (k + number) % 2:
                with pytest.raises(tf.errors.InvalidArgumentError, match="lengths.* must"):
                    compiled(arguments[k][0], wrong)
            elif _bits(compiled(*arguments[k])) != want[k]:
                return False
        return True

    assert all(_run_together(work))


def test_draws_of_one_program_are_not_shared(tfb):
    """Threads that call one program with dropout at once draw different masks."""
    net = Network("rnn_relu", 2, 1, 16, 16, skip=True)
    call = Call(net, 8, 6, dropout=0.5, seeds=(3, 5))
    tensors, cotangents = call.tensors(call.random("float")), call.cotangents("float")

    def train(tensors):
        outputs = call.forward(tfb.raw_ops, tensors)
        return [*outputs, *call.backward(tfb.raw_ops, tensors, outputs, cotangents)]

    compiled = run_modes.in_mode("jit", train)
    series = [tuple(cudnn_ops.bits(compiled(tensors))) for _ in range(1 + CALLERS * ROUNDS)]
    again = run_modes.in_mode("jit", train)
    first = tuple(cudnn_ops.bits(again(tensors)))

    def work(k):
        del k
        return [tuple(cudnn_ops.bits(again(tensors))) for _ in range(ROUNDS)]

    found = [first, *(bits for one in _run_together(work) for bits in one)]
    assert len(set(series)) == len(series)
    # In another order, but each with the gradients of its own mask.
    assert sorted(found) == sorted(series)
