"""Checks the ops' handlers for XLA, those of the package, in JAX: on a GPU without TensorFlow.

Where there are TensorFlow and the package, whose build must be one with CUDA for a GPU:

python tests/gpu/check_ffi.py --prepare .build/ffi

Then with NumPy and JAX alone, on the CPU with the package's engines, on a GPU with the library of
run.py, and on the CPU with the emulated engine, through the handlers for a GPU:

python tests/gpu/check_ffi.py --folder .build/ffi
python tests/gpu/check_ffi.py --folder .build/ffi --platform CUDA --library .build/gpu/engine.so
python tests/gpu/check_ffi.py --folder .build/ffi --platform emulated --library EMULATED/engine.so \
  --cublas EMULATED/libcublas.so.12
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import dataclasses
import functools
import importlib.util
import itertools
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable

import check_program
import check_sequences
import check_stack
import device_engine
import emulated_xla
import ffi_calls
import jax_calls
import numpy as np
import sequences
from device_stack import Options
from helpers import block_cells, compare, covering, cudnn_calls, sequence_ops, tolerances
from helpers.reference import stack as stack_oracle
from helpers.reference.stack import Network

DTYPES = block_cells.DTYPES


# ---- one op


@dataclasses.dataclass(frozen=True)
class Block:
    """A call of an op of block_cells.py or sequence_ops.py."""

    op: block_cells.Op
    attrs: tuple[tuple[str, object], ...]
    dims: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.op.name} {self.dtype} {self.dims} {dict(self.attrs)}"

    def inputs(self) -> dict[str, np.ndarray]:
        valid = self.dims[0] - 1 if "seq_len_max" in self.op.inputs else None
        kind = block_cells.numpy_type(self.dtype)
        return block_cells.random_inputs(self.op, self.dims, kind, valid=valid)


def blocks(dims_list, ops) -> list[Block]:
    """Every op, type, attribute and size, in pairs."""
    cases = covering.pairwise(dims_list, block_cells.op_cases(ops), DTYPES)
    return [Block(op, tuple(attrs.items()), dims, dtype) for dims, (op, attrs), dtype in cases]


def check_block(ops: jax_calls.Ops, case: Block) -> None:
    attrs, inputs = dict(case.attrs), case.inputs()
    ops.allow_tf32(False)
    got = ops.call(case.op.name, case.dtype, inputs, attrs)
    longest = case.op.longest_sum(case.dims, attrs)
    bound = tolerances.bound(case.dtype, longest, case.op.backward)
    if case.op.backward and len(case.dims) == 4:
        bound = tolerances.gpu_gradient_bound(case.dtype, longest)
    for name, want in block_cells.oracle(case.op, inputs, attrs).items():
        compare.assert_close(got[name], want, bound, name)


def sequence_calls(cell: str, platform: str) -> list[sequences.Call]:
    """What of check_sequences.py's the ops have; each type in turn, and larger sizes in all."""
    plain = sequences.Call(cell, check_sequences.DIMS)
    only = ("skip_input", "state_stride", "h_extra", "weights_by_unit", "saved_in_steps", "keeps")
    found = [
        ffi_calls.of_op(call, dtype=dtype)
        for call, dtype in zip(check_sequences.variants(cell), itertools.cycle(DTYPES))
        if all(getattr(call, name) == getattr(plain, name) for name in (*only, "block_bytes"))
        and call.without in ((), ("co",))
    ]
    large = (8, 33, 40, 160) if platform == "CUDA" else (6, 17, 33, 65)
    found.append(ffi_calls.of_op(plain, keeps=False))
    lengths = tuple(1 + 5 * b % large[0] for b in range(large[1]))
    found += [ffi_calls.of_op(plain, dtype=d, dims=large, lengths=lengths) for d in DTYPES]
    if platform == "CUDA":
        found.append(ffi_calls.of_op(plain, dims=large, allow_tf32=True))
    return found


def check_recomputed(ops: jax_calls.Ops, call: sequences.Call) -> None:
    """The backward that recomputes in spans of two steps, and the one that reads all steps."""
    values = sequences.random_values(call)
    plain, spans = ffi_calls.Sequences(ops), ffi_calls.Sequences(ops, recompute=2)
    gradients = []
    for calls in (plain, spans):
        outputs = calls.forward(call, values)
        outputs = {k: device_engine.decode(v, call.dtype) for k, v in outputs.items()}
        given = check_sequences.given_backward(call, values, outputs)
        given.pop("cs_grad", None)  # of cell states that the recomputing one does not save
        gradients.append(calls.backward(call, given))
    t, b, i, h = call.dims
    longest = t * max(i + h, len(call.gates) * h, b)
    bound = tolerances.parity_bound(call.dtype, longest, backward=True)
    for name, want in gradients[0].items():
        got, want = (device_engine.decode(v, call.dtype) for v in (gradients[1][name], want))
        assert np.any(want)
        compare.assert_close(got, want, bound, name)


def stack_calls(platform: str) -> list[tuple]:
    """(call, type, whether TF32 may be used)"""
    found = []
    for (m, mode), (n, dtype) in itertools.product(enumerate(cudnn_calls.MODES), enumerate(DTYPES)):
        calls = cudnn_calls.odd_calls(mode)
        found += [(call, dtype, False) for call in calls[(m + n) % 2 :: 2]]
        old = cudnn_calls.Call(Network(mode, 2, 2, 5, 4), 3, 4, version=1 + (m + n) % 2)
        found.append((old, dtype, False))
        # Not relu: of so many arguments one is near its kink. Nor 16 bits, whose gradient of a
        # bias is on the scale of its terms, and not on that of all params; sequences have both.
        if platform == "CUDA" and mode in ("lstm", "gru") and dtype in ("float", "double"):
            large = cudnn_calls.Call(Network(mode, 2, 2, 40, 160), 8, 33)
            found += [(large, dtype, tf32) for tf32 in sorted({False, dtype == "float"})]
    return found


def check_stack_call(ops: jax_calls.Ops, case: tuple) -> None:
    call, dtype, allow_tf32 = case
    check_stack.compare_stack(ffi_calls.Stacks(ops), call, dtype, Options(allow_tf32=allow_tf32))


def networks() -> list[tuple]:
    """(network, type, version)"""
    nets = [net for mode in cudnn_calls.MODES for net in list(cudnn_calls.networks(mode))[::5]]
    return [
        (net, DTYPES[n % 4], version)
        for n, net in enumerate(nets)
        for version in ("", "V2")
        if version or not net.num_proj
    ]


def check_params(ops: jax_calls.Ops, case: tuple) -> None:
    """Parameters as weights and biases, and back: the same bits."""
    net, dtype, version = case
    params = cudnn_calls.Call(net).random(dtype)["params"]
    weights, biases = stack_oracle.canonical(net, params)
    attrs = cudnn_calls.Call(net).attrs() | {"num_params": len(weights), "S": "int64"}
    attrs |= {"num_params_weights": len(weights), "num_params_biases": len(biases)}
    sizes = {"num_layers": net.layers, "num_units": net.units, "input_size": net.inputs}
    shapes = {"weights": [w.shape for w in weights], "biases": [b.shape for b in biases]}
    op = f"CudnnRNNParamsToCanonical{version}"
    got = ops.call(op, dtype, sizes | {"params": params}, attrs, lists=shapes)
    for value, want in zip(got.values(), [*weights, *biases], strict=True):
        assert compare.bits(value) == compare.bits(want)
    op = f"CudnnRNNCanonicalToParams{version}"
    given = sizes | {"weights": weights, "biases": biases}
    got = ops.call(op, dtype, given, attrs, lists={"params": [params.shape]})
    assert compare.bits(got["params"]) == compare.bits(params)
    if not ops.on_gpu:  # a constant in a program; its kernel's output is in host memory
        got = ops.call("CudnnRNNParamsSize", dtype, sizes, attrs)
        assert got["params_size"].tolist() == [params.size]


# ---- what must be refused, and programs of several calls

LSTM = Block(sequence_ops.LSTM_V2, (), (3, 2, 4, 5), "float")
GRU = Block(sequence_ops.GRU, (), (3, 2, 5, 4), "float")


def bound_block(ops: jax_calls.Ops, case: Block):
    return ops.bound(case.op.name, case.dtype, case.inputs(), dict(case.attrs))


def refusals(ops: jax_calls.Ops) -> dict[str, Callable]:
    """Calls that must be refused, by what the error says."""

    def block(**wrong) -> None:
        """The function is that of legal shapes."""
        function, _ = bound_block(ops, LSTM)
        run(function, {**LSTM.inputs(), **wrong}.values())

    def run(function, arrays) -> None:
        ops.jax.block_until_ready(ops.jax.jit(function)(*arrays))

    def node(message: bytes) -> None:
        run(ops.function("GRUBlockCell", [((1,), np.float32)], message), [])

    def sequence(lengths) -> None:
        call = sequences.Call("rnn", (3, 2, 4, 5), lengths=lengths)
        ffi_calls.Sequences(ops).forward(call, sequences.random_values(call))

    def reserve(cut: int) -> None:
        call, options = cudnn_calls.Call(Network("gru", 2, 2, 3, 4)), Options()
        stack = ffi_calls.Stacks(ops)
        arrays, cotangents = call.random("float"), call.cotangents("float")
        found = stack.forward(call, "float", arrays, options)
        found["all"]["reserve_space"] = found["all"]["reserve_space"][:cut]
        stack.backward(call, "float", arrays, found, cotangents, options)

    zeros, partial = functools.partial(np.zeros, dtype=np.float32), functools.partial
    return {
        "w must have shape": partial(block, w=zeros((5, 20))),
        "b must have shape": partial(block, b=zeros(19)),
        "x must": partial(block, x=zeros((3, 2))),
        "seq_len_max must be in 0..T = 0..3, got 4": partial(block, seq_len_max=np.int64(4)),
        "seq_len_max must be in 0..T = 0..3, got -1": partial(block, seq_len_max=np.int64(-1)),
        "sequence_lengths": partial(sequence, (4, 0)),
        "reserve_space must be": partial(reserve, -1),
        "a custom call without a node": partial(node, b"no message"),
        "no kernel of GRUBlockCell for int32": partial(
            node, jax_calls.node("GRUBlockCell", T="int32")
        ),
        "epsilon must be": partial(
            node, jax_calls.node("LayerNormGRUSequence", T="float", epsilon=-1.0)
        ),
    }


def check_refusal(ops: jax_calls.Ops, words: str, run: Callable) -> None:
    try:
        run()
    except ops.jax.errors.JaxRuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError("accepted")
    check_block(ops, LSTM)  # the next call


def same_bits(ops: jax_calls.Ops, call: sequences.Call) -> None:
    first, second = (check_sequences.all_bits(ffi_calls.Sequences(ops), call) for _ in range(2))
    assert first == second


def check_two_calls(ops: jax_calls.Ops, batch: int) -> None:
    """Two ops in one program, whose arrays are computed on the way: the bits of separate calls.

    Eight threads run it at the same time.
    """
    lstm, gru = (
        dataclasses.replace(case, dims=(case.dims[0], batch, *case.dims[2:]))
        for case in (LSTM, GRU)
    )
    (first, arrays), (second, others) = (bound_block(ops, case) for case in (lstm, gru))

    def program(number):
        outputs = first(arrays[0], number * ops.jax.numpy.asarray(arrays[1]), *arrays[2:])
        return outputs, second(others[0], outputs[-1], *others[2:])

    run = ops.jax.jit(program)
    want = [np.asarray(v) for v in ops.jax.jit(first)(arrays[0], 2 * arrays[1], *arrays[2:])]
    want += [np.asarray(v) for v in ops.jax.jit(second)(others[0], want[-1], *others[2:])]

    def bits(_) -> bytes:
        return compare.digest(np.asarray(v) for v in itertools.chain(*run(np.float32(2))))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert set(pool.map(bits, range(40))) == {compare.digest(want)}


# ---- the program


def arguments_of() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[check_program.options()],
    )  # fmt: skip
    add = parser.add_argument
    add("--prepare", type=pathlib.Path, metavar="FOLDER", help="write it, and end")
    add("--package", type=pathlib.Path, default=jax_calls.PACKAGE, help="built for that")
    add("--folder", type=pathlib.Path, help="as --prepare left it")
    add("--platform", choices=("cpu", "CUDA", "emulated"), default="cpu")
    add("--library", type=pathlib.Path, help="the CUDA engine, but for the CPU")
    add("--cublas", type=pathlib.Path, help="the emulation's")
    arguments = parser.parse_args()
    if (arguments.prepare is None) == (arguments.folder is None):
        parser.error("either --prepare or --folder")
    if (arguments.platform == "cpu") != (arguments.library is None):
        parser.error("CUDA needs --library, the CPU none")
    return arguments


def start_jax(platform: str):
    """JAX with float64, on this platform alone."""
    if importlib.util.find_spec("jax") is None:
        check_program.not_run("no JAX")
    os.environ["JAX_PLATFORMS"] = "cuda" if platform == "CUDA" else "cpu"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    jax.config.update("jax_enable_x64", True)
    print(f"JAX {jax.__version__}: {jax.devices()}", flush=True)
    return jax


def engines(library: pathlib.Path | None) -> dict[str, pathlib.Path]:
    """By the names that the ops' library looks for, of any version of CUDA that runs here."""
    if library is not None:
        return {"libblockrnn_cuda12.so": library}
    return {path.name: path for path in jax_calls.PACKAGE.glob("libblockrnn_cpu_*.so")}


def emulation(arguments: argparse.Namespace) -> ctypes.CDLL:
    """The emulated engine, which finds the substitute of cuBLAS."""
    engine, stand_in = (ctypes.CDLL(str(p)) for p in (arguments.library, arguments.cublas))
    stand_in.stand_in_connect(engine.emulation_enqueue, engine.emulation_fails_now)
    return engine


def lives(jax) -> bool:
    """Whether the device still computes: an illegal address ends that."""
    try:
        return float(jax.numpy.ones(3).sum()) == 3
    except jax.errors.JaxRuntimeError:
        return False


def checks_of(ops: jax_calls.Ops) -> dict[str, Callable[[], int]]:
    dims = ((3, 5, 7), (17, 33, 31), (65, 130, 63))
    steps = ((4, 3, 5, 7), (5, 9, 15, 33), (3, 33, 32, 64))
    kinds = {
        "block cells": (blocks(dims, block_cells.OPS), check_block),
        "block sequences": (blocks(steps, sequence_ops.OPS), check_block),
        **{
            f"sequences, {cell}": (
                sequence_calls(cell, ops.platform),
                lambda ops, call: check_sequences.check_call(ffi_calls.Sequences(ops), call),
            )
            for cell in sequences.CELLS
        },
        "recomputed": (
            [ffi_calls.of_op(sequences.Call(cell, (7, 4, 3, 6), dtype, lengths=(7, 1, 0, 4)))
             for cell in sequences.RECOMPUTED for dtype in DTYPES],
            check_recomputed,
        ),
        "stacks": (stack_calls(ops.platform), check_stack_call),
        "parameters": (networks(), check_params),
        "same bits": (
            [ffi_calls.of_op(sequences.Call(cell, (9, 33, 20, 65), dtype))
             for cell in sequences.CELLS for dtype in ("float", "bfloat16")],
            same_bits,
        ),
        "two calls in a program": ((2, 33, 200), check_two_calls),
    }  # fmt: skip

    def each(cases: Iterable, check: Callable) -> int:
        # A case may be a tuple.
        return check_program.each(((case,) for case in cases), functools.partial(check, ops))

    found = {name: functools.partial(each, cases, check) for name, (cases, check) in kinds.items()}
    refused = refusals(ops)
    found["refused"] = lambda: each(
        refused, lambda ops, words: check_refusal(ops, words, refused[words])
    )
    return found


def main() -> None:
    arguments = arguments_of()
    if arguments.prepare is not None:
        jax_calls.prepare(arguments.package, arguments.prepare)
        return
    jax = start_jax(arguments.platform)
    emulated = None
    if arguments.platform == "CUDA":
        device_engine.load_nvidia_cublas()  # JAX may load it after the ops have looked for it
    elif arguments.platform == "emulated":
        emulated = functools.partial(emulated_xla.EmulatedXla, engine=emulation(arguments))
    with tempfile.TemporaryDirectory() as at:
        ops = jax_calls.Ops(
            jax, arguments.platform, arguments.folder, engines(arguments.library),
            pathlib.Path(at), emulated,
        )  # fmt: skip
        print(ops.engine(), flush=True)
        check_program.run(arguments, checks_of(ops), lambda: lives(jax))


if __name__ == "__main__":
    main()
