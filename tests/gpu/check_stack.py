"""Checks stacks of layers, the cuDNN family, in a library that run.py has built.

Against the reference in float64; the reserve space byte for byte, and its masks against a Philox of
their own. In what order the work runs is check_stack_order.py's.
"""

from __future__ import annotations

import itertools
import struct

import check_program
import device_engine
import numpy as np
from device_stack import (
    DEFAULT,
    Options,
    Stack,
    cotangents_of,
    exact,
    reference,
    slopes_are_certain,
)
from helpers import block_cells, compare, cudnn_calls, tolerances
from helpers.cudnn_calls import Call
from helpers.reference.stack import Network

_HEADER_BYTES = 128
_USED_HEADER_BYTES = 112
_ARRAYS = {"lstm": 5, "gru": 4, "rnn_relu": 0, "rnn_tanh": 0}  # saved per layer direction


def compare_stack(stack: Stack, call: Call, dtype: str, options=DEFAULT, seed=0, masks=None):
    """One forward and backward against the reference; what came, for more checks.

    seed: of the first numbers that are tried; those are taken whose slopes are certain.
    """
    for n in itertools.count(seed):
        arrays = exact(call.random("double", n), dtype)
        found = stack.forward(call, dtype, arrays, options)
        run = reference(call, dtype, arrays, masks(found) if masks else None)
        if slopes_are_certain(run, dtype):
            break
    cotangents = cotangents_of(call, dtype)
    net, what = call.net, f"{call} {dtype} {options}"
    # TF32 has as many bits of mantissa as half.
    precision = "half" if options.allow_tf32 and dtype == "float" else dtype
    bound = tolerances.stack_bound(precision, call.longest_sum(), net.layers)
    for name, want in run.outputs().items():
        if name in found:
            got = call.laid_out(device_engine.decode(found[name], dtype))
            compare.assert_close(got, want, bound, f"{name} of {what}")
    past = call.laid_out(device_engine.decode(found["output"], dtype))[~run.alive]
    assert not np.any(past != 0), f"not zero past the lengths: {what}"
    gradients = stack.backward(call, dtype, arrays, found, cotangents, options)
    bound = tolerances.stack_bound(precision, call.longest_sum(), net.layers, backward=True)
    slack = tolerances.stored_slope_factor(net.mode, dtype)
    for name, want in run.backward(*cotangents).items():
        if name in gradients:
            got = call.laid_out(device_engine.decode(gradients[name], dtype))
            compare.assert_close(got, want, bound, f"{name} of {what}", slack)
    return arrays, cotangents, found, gradients


def every_network(stack: Stack) -> int:
    """Directions, layers, projections, skipped inputs, lengths and orders of memory, in float64."""
    cases = (
        (shift, number, net)
        for mode, shift in itertools.product(cudnn_calls.MODES, range(2))
        for number, net in enumerate(cudnn_calls.networks(mode))
    )

    def check(shift, number, net) -> None:
        steps, batch = ((4, 3), (1, 5), (6, 1), (3, 4))[number % 4]
        kind = cudnn_calls.LENGTHS[(number + number // 4 + shift) % 4]
        lengths = cudnn_calls.lengths_of(kind, steps, batch)
        call = Call(net, steps, batch, lengths, time_major=number % 3 != shift)
        options = Options(blas=(number + shift) % 2 == 0)
        compare_stack(stack, call, "double", options, number)

    return check_program.each(cases, check)


def every_type(stack: Stack) -> int:
    """Sizes of one less and more than a warp has, few rows and many, few units and many."""
    cases = (
        (call, dtype, Options(blas=(n + t) % 4 < 2), n)
        for (m, mode), (t, dtype) in itertools.product(
            enumerate(cudnn_calls.MODES), enumerate(block_cells.DTYPES)
        )
        for n, call in enumerate(cudnn_calls.odd_calls(mode))
        # The emulation is slow. Each type comes with each size, and with each mode.
        if not stack.engine.emulated or (n + m + t) % 4 == 0
    )
    return check_program.each(cases, lambda *case: compare_stack(stack, *case))


def many_blocks(stack: Stack) -> int:
    """The steps in blocks of one or a few, whatever the lengths."""
    cases = itertools.product(("rnn_tanh", "lstm", "gru"), (None, (0, 7, 3, 6)), (False, True))

    def check(mode, lengths, blas) -> None:
        call = Call(Network(mode, 2, 2, 3, 4), 7, 4, lengths, time_major=blas)
        compare_stack(stack, call, "float", Options(blas, block_bytes=1))

    return check_program.each(cases, check)


def empty_dims(stack: Stack) -> int:
    """What is empty is empty; states pass through, gradients are zero."""
    sizes = ((0, 3, 2, 3), (3, 0, 2, 3), (3, 2, 0, 3), (3, 2, 2, 0), (0, 0, 2, 3), (0, 0, 0, 0))
    cases = itertools.product(cudnn_calls.MODES, sizes, ((1, 1), (2, 2)))

    def check(mode, size, layers) -> None:
        steps, batch, inputs, units = size
        call = Call(Network(mode, *layers, inputs, units), steps, batch)
        compare_stack(stack, call, "float")

    return check_program.each(cases, check)


def without_training(stack: Stack) -> int:
    """Without a reserve space the outputs have the same bits; null cotangents are zeros."""

    def check(mode) -> None:
        call = Call(Network(mode, 3, 2, 3, 4), 3, 3, (2, 0, 3))
        arrays = exact(call.random("double"), "float")
        found = stack.forward(call, "float", arrays)
        quick = stack.forward(call, "float", arrays, training=False)
        for name, value in quick.items():
            assert compare.bits(value) == compare.bits(found[name]), f"{mode} {name}"
        cotangents = cotangents_of(call, "float")
        for left_out in range(3):
            zeros = [c * 0 if n == left_out else c for n, c in enumerate(cotangents)]
            nulls = [None if n == left_out else c for n, c in enumerate(cotangents)]
            want = stack.backward(call, "float", arrays, found, zeros)
            got = stack.backward(call, "float", arrays, found, nulls)
            for name, value in want.items():
                np.testing.assert_array_equal(got[name], value, f"{mode} {name} {left_out}")

    return check_program.each(cudnn_calls.MODES, check)


# ---- dropout


def philox(key, counter, count: int) -> np.ndarray:
    """Philox4x32-10 of Salmon et al., 2011: four numbers for each of `count` counters."""
    base = sum(digit << (32 * n) for n, digit in enumerate(counter))
    counters = [(base + n) % 2**128 for n in range(count)]
    x = [np.array([c >> (32 * n) & 0xFFFFFFFF for c in counters], np.uint64) for n in range(4)]
    keys = [np.uint64(k) for k in key]
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    steps = (0x9E3779B9, 0xBB67AE85)
    for _ in range(10):
        a, b = x[0] * np.uint64(0xD2511F53), x[2] * np.uint64(0xCD9E8D57)
        x = [(b >> shift) ^ x[1] ^ keys[0], b & low, (a >> shift) ^ x[3] ^ keys[1], a & low]
        keys = [(k + np.uint64(s)) & low for k, s in zip(keys, steps, strict=True)]
    return np.stack(x, axis=1)


def mask_bits(call: Call, options: Options, layer: int) -> np.ndarray:
    """Which elements of a layer's output dropout retains, in the order of memory."""
    elements = call.steps * call.batch * call.net.directions * call.net.width
    per_layer = -(-elements // 4)
    state = sum(digit << (32 * n) for n, digit in enumerate(options.philox[2:]))
    state = (state + layer * per_layer) % 2**128
    counter = [state >> (32 * n) & 0xFFFFFFFF for n in range(4)]
    numbers = philox(options.philox[:2], counter, per_layer).reshape(-1)[:elements]
    rate = float(np.float32(call.dropout))
    return (numbers >= np.uint64(rate * 2**32)) & (rate < 1)


def reserve_parts(call: Call, dtype: str):
    """(name, begin, end used, end) of everything in a reserve space."""
    net, size = call.net, device_engine.encode(np.zeros(1), dtype).itemsize
    lengths = (call.steps,) * call.batch if call.lengths is None else call.lengths
    elements = call.steps * call.batch * net.directions * net.width
    parts, begin = [("header", 0, _USED_HEADER_BYTES, _HEADER_BYTES)], _HEADER_BYTES

    def add(name, used):
        nonlocal begin
        end = begin + -(-used // 64) * 64
        parts.append((name, begin, begin + used, end))
        begin = end

    for k, n in itertools.product(range(net.layer_directions), range(_ARRAYS[net.mode])):
        add(f"array {n} of {k}", sum(lengths) * net.units * size)
    for layer in range(net.layers - 1):
        add(f"h {layer}", elements * size)
    for layer in range(net.layers - 1 if call.dropout > 0 else 0):
        add(f"mask {layer}", -(-elements // 8))
    return parts


def dropout(stack: Stack) -> int:
    """The masks bit by bit, and what they do forward and backward."""
    states = ((1, 2, 3, 4, 5, 6), (7, 8, 2**32 - 2, 2**32 - 1, 2**32 - 1, 9))
    rates = ((0.5, 0), (0.1, 1), (1.0, 0), (0.9, 1))
    cases = itertools.product(("rnn_tanh", "lstm", "gru"), (1, 2), rates, (True, False))

    def check(count, case) -> None:
        mode, directions, (rate, state), time_major = case
        options = Options(philox=states[state])
        call = Call(Network(mode, 3, directions, 3, 5), 3, 3, (3, 1, 2), time_major, dropout=rate)
        dtype = ("float", "half", "bfloat16", "double")[count % 4]
        compare_stack(stack, call, dtype, options, masks=masks_of(call, dtype, options))

    return check_program.each(enumerate(cases), check) + _dropped_nan(stack)


def masks_of(call: Call, dtype: str, options: Options):
    """What makes factors of each layer's output of a forward's results, whose masks it checks."""

    def masks(found):
        parts = {p[0]: p for p in reserve_parts(call, dtype)}
        shape = call.laid_out(np.zeros((call.steps, call.batch, 1))).shape[:2]
        of_layers = []
        for layer in range(call.net.layers - 1):
            want = mask_bits(call, options, layer)
            _, begin, end, _ = parts[f"mask {layer}"]
            got = np.unpackbits(found["reserve"][begin:end], bitorder="little")
            np.testing.assert_array_equal(got[: want.size], want, f"mask of {call}")
            assert not got[want.size :].any(), "bits behind the last element"
            scale = 0 if call.dropout >= 1 else 1 / (1 - float(np.float32(call.dropout)))
            of_layers.append(call.laid_out(want.reshape(*shape, -1) * scale))
        return of_layers

    return masks


def _dropped_nan(stack: Stack) -> int:
    """What is dropped is zero, whatever it was."""
    call = Call(Network("rnn_tanh", 2, 1, 3, 5), 3, 2, dropout=1.0)
    arrays = exact(call.random("double"), "float")
    arrays["input"] *= np.nan
    found = stack.forward(call, "float", arrays)
    assert np.isfinite(found["output"]).all(), "a dropped NaN goes up"
    return 1


# ---- the reserve space


def reserve_space(stack: Stack) -> int:
    """All of it is written, always alike; the header of another op gives NaN in all gradients."""

    def check(mode) -> None:
        net = Network(mode, 2, 2, 3, 5, 3 if mode == "lstm" else 0)
        call = Call(net, 3, 3, (3, 0, 2), dropout=0.5)
        arrays = exact(call.random("double"), "half")
        found = stack.forward(call, "half", arrays)
        parts = reserve_parts(call, "half")
        assert parts[-1][3] == found["reserve"].size, f"{mode}: a size of {found['reserve'].size}"
        for name, _, used, end in parts:
            assert not found["reserve"][used:end].any(), f"{mode}: the gap behind {name}"
        _check_header(call, found["reserve"])
        again = stack.forward(call, "half", arrays)
        assert compare.bits(again["reserve"]) == compare.bits(found["reserve"]), mode
        _check_foreign_headers(stack, call, arrays, found)

    return check_program.each(cudnn_calls.MODES, check)


def _check_header(call: Call, reserve: np.ndarray) -> None:
    """The header but for the hash of the lengths, field by field."""
    net = call.net
    mode, projected = cudnn_calls.MODES.index(net.mode), int(net.num_proj > 0)
    cuda, size, version = 2, 2, 1
    want = (
        b"BLKrnnv1", version, cuda, mode, size, projected, net.skip, call.time_major, call.dropout,
        net.layers, net.directions, net.inputs, net.units, net.width, call.steps, call.batch,
        sum(call.lengths),
    )  # fmt: skip
    got = struct.unpack_from("<8sIIiiiiif8q", reserve.tobytes())
    assert got == want, f"{got}, must be {want}"


def _check_foreign_headers(stack: Stack, call: Call, arrays, found) -> None:
    cotangents = cotangents_of(call, "half")
    want = stack.backward(call, "half", arrays, found, cotangents)
    assert all(np.isfinite(device_engine.decode(v, "half")).all() for v in want.values())
    # A bit of each 8 bytes, and past the header's fields, where nothing is compared.
    for byte in (*range(0, _USED_HEADER_BYTES, 7), _USED_HEADER_BYTES, _HEADER_BYTES - 1):
        reserve = found["reserve"].copy()
        reserve[byte] ^= 1 << (byte % 8)
        got = stack.backward(call, "half", arrays, {**found, "reserve": reserve}, cotangents)
        for name, value in got.items():
            values = device_engine.decode(value, "half")
            if byte < _USED_HEADER_BYTES:
                assert np.isnan(values).all(), f"{name}: byte {byte} of the header"
            else:
                assert compare.bits(value) == compare.bits(want[name]), f"{name}: byte {byte}"


def main() -> None:
    arguments = check_program.arguments_of(__doc__)
    stack = Stack(arguments)
    checks = {
        "empty stacks": lambda: empty_dims(stack),
        "reserve spaces": lambda: reserve_space(stack),
        "dropout of stacks": lambda: dropout(stack),
    }
    if not arguments.small:
        checks["every network"] = lambda: every_network(stack)
        checks["every type of stacks"] = lambda: every_type(stack)
        checks["blocks of steps"] = lambda: many_blocks(stack)
        checks["stacks without training"] = lambda: without_training(stack)
    check_program.run(arguments, checks, stack.engine.lives)


if __name__ == "__main__":
    main()
