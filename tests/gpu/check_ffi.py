"""Checks the ops' handlers for XLA, those of the package, in JAX: on a GPU without TensorFlow.

python tests/gpu/check_ffi.py --prepare .build/ffi      where there are the package and TensorFlow
python tests/gpu/check_ffi.py --folder .build/ffi       with JAX alone, on the CPU
python tests/gpu/check_ffi.py --folder .build/ffi --platform CUDA --library .build/gpu/engine.so

Needs NumPy and JAX; for the CPU also the package's engines, for a GPU the library of run.py.
"""

from __future__ import annotations

import argparse
import concurrent.futures
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
import jax_calls
import numpy as np
import sequences
from device_stack import Options
from helpers import block_cells, compare, covering, cudnn_calls, op_table, sequence_ops, tolerances
from helpers.reference import stack as stack_oracle
from helpers.reference.stack import Network

DTYPES = block_cells.DTYPES


def each(name: str, cases: Iterable, check: Callable) -> int:
    """Runs check(case) for every case; what fails does not stop the others."""
    failed = count = 0
    for case in cases:
        count += 1
        try:
            check(case)
            print(f"ok  {name}: {case}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAILED  {name}: {case}: {type(error).__name__}: {error}", flush=True)
    assert not failed, f"{failed} of {count} cases failed"
    return count


# ---- cells and sequences in the signatures of TensorFlow


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
    got = ops.call(case.op.name, case.dtype, inputs, attrs)
    longest = case.op.longest_sum(case.dims, attrs)
    bound = tolerances.bound(case.dtype, longest, case.op.backward)
    if case.op.backward and len(case.dims) == 4:
        bound = tolerances.gpu_gradient_bound(case.dtype, longest)
    for name, want in block_cells.oracle(case.op, inputs, attrs).items():
        compare.assert_close(got[name], want, bound, name)


# ---- sequences, as check_sequences.py checks them

_OPS = {
    "rnn": "RNNSequence",
    "lstm": "LSTMSequence",
    "gru": "GRUSequence",
    "gru_after": "GRUAfterSequence",
    "layer_norm_lstm": "LayerNormLSTMSequence",
    "layer_norm_gru": "LayerNormGRUSequence",
}
_PEEPHOLES = ("wci", "wcf", "wco")
# The ops of a gru have r and u in one array, c in another.
_PARTS = {"w_x": ("w_ru_x", "w_c_x"), "w_h": ("w_ru_h", "w_c_h"), "b_x": ("b_ru", "b_c")}


class Sequences:
    """The sequence ops with the interface of sequences.Sequences."""

    def __init__(self, ops: jax_calls.Ops, recompute: int = 0):
        self.ops, self.recompute = ops, recompute
        self._spans = np.zeros(0)  # of the last forward, bytes of another type

    def forward(self, call: sequences.Call, values) -> dict[str, np.ndarray]:
        found = self._call(_OPS[call.cell], call, values)
        self._spans = found.pop("span_states", self._spans)
        return {k: _encoded(v, call.dtype) for k, v in found.items()}

    def backward(self, call: sequences.Call, values) -> dict[str, np.ndarray]:
        found = self._call(f"{_OPS[call.cell]}Grad", call, {**values, "span_states": self._spans})
        return {k.removesuffix("_grad"): _encoded(v, call.dtype) for k, v in found.items()}

    def _call(self, name: str, call: sequences.Call, values) -> dict[str, np.ndarray]:
        op, attrs = op_table.OPS[name], self._attrs(call)
        given = {k: _laid_out(op, call, k, v) for k, v in _to_op(call, values).items()}
        if call.lengths is not None:
            given["sequence_lengths"] = call.lengths
        self.ops.allow_tf32(call.allow_tf32)
        sizes = {"K": int(self.recompute == 0), "N": self._span_states(call)}
        got = self.ops.call(name, call.dtype, given, attrs, sizes=sizes)
        left_out = {f"{k}_grad" for k in op.inputs if k not in given}
        return _from_op(
            call, {k: _laid_out(op, call, k, v) for k, v in got.items() if k not in left_out}
        )

    def _attrs(self, call: sequences.Call) -> dict[str, object]:
        return {
            "time_major": call.time_major,
            "go_backwards": call.backwards,
            "recompute": self.recompute,
            "forget_bias": call.forget_bias,
            "cell_clip": call.cell_clip,
            "zoneout_rate_h": call.zoneout_rates[0],
            "zoneout_rate_c": call.zoneout_rates[1],
            "activation": "relu" if call.relu else "tanh",
            "gate_order": "urc" if call.layout else "ruc",
            "epsilon": call.epsilon,
            "norm_output_only": call.norm_output_only,
        }

    def _span_states(self, call: sequences.Call) -> int:
        """The states before each span but the first, float at least."""
        if not self.recompute:
            return 0
        t, b, _, h = call.dims
        words = 2 if call.dtype in ("half", "bfloat16") else 1
        return (-(-t // self.recompute) - 1) * b * (h + call.width * call.has_cs) * words


def _to_op(call: sequences.Call, values) -> dict[str, np.ndarray]:
    """From the names of the reference to those of the ops."""
    found = dict(values)
    for name, parts in _PARTS.items() if call.cell == "gru" else ():
        if name in found:
            split = np.split(found.pop(name), [2 * call.dims[3]], axis=-1)
            found |= dict(zip(parts, split, strict=True))
    if call.use_peephole:
        found["peepholes"] = np.stack([found.pop(name) for name in _PEEPHOLES])
    return found


def _from_op(call: sequences.Call, found: dict) -> dict[str, np.ndarray]:
    """The reverse, for gradients."""
    for name, parts in _PARTS.items():
        parts = [f"{part}_grad" for part in parts]
        if parts[0] in found:
            found[f"{name}_grad"] = np.concatenate([found.pop(part) for part in parts], axis=-1)
    if "peepholes_grad" in found:
        found |= zip((f"{n}_grad" for n in _PEEPHOLES), found.pop("peepholes_grad"), strict=True)
    return found


def _laid_out(op: op_table.Op, call: sequences.Call, name: str, value):
    """From time-major to the layout of the call, or back."""
    argument = op.inputs.get(name) or op.outputs.get(name)
    if argument is not None and argument.same_as:
        argument = op.inputs[argument.same_as]
    if call.time_major or argument is None or len(argument.alternatives) == 1:
        return value
    return np.swapaxes(value, 0, 1)


def _encoded(value: np.ndarray, dtype: str) -> np.ndarray:
    """As it lies in memory."""
    return device_engine.encode(value.astype(np.float64), dtype)


def sequence_calls(cell: str, on_gpu: bool) -> list[sequences.Call]:
    """What of check_sequences.py's the ops have; each type in turn, and larger sizes in all."""
    plain = sequences.Call(cell, check_sequences.DIMS)
    only = ("skip_input", "state_stride", "h_extra", "weights_by_unit", "saved_in_steps", "keeps")
    found = [
        _of_op(call, dtype=dtype)
        for call, dtype in zip(check_sequences.variants(cell), itertools.cycle(DTYPES))
        if all(getattr(call, name) == getattr(plain, name) for name in (*only, "block_bytes"))
        and call.without in ((), ("co",))
    ]
    large = (20, 40, 100, 256) if on_gpu else (6, 17, 33, 65)
    lengths = tuple(1 + 5 * b % large[0] for b in range(large[1]))
    found += [_of_op(plain, dtype=d, dims=large, lengths=lengths) for d in DTYPES]
    if on_gpu:
        found.append(_of_op(plain, dims=large, allow_tf32=True))
    return found


def _of_op(call: sequences.Call, **changes) -> sequences.Call:
    """A call with the ops' gate order and their fewer arguments, and attrs as float32."""
    call = dataclasses.replace(call, **changes)
    return dataclasses.replace(
        call,
        state_bias=False,
        without=("co",) if call.cell == "lstm" else (),
        layout=1 if call.has_cs else call.layout,
        epsilon=float(np.float32(call.epsilon)),
    )


def check_recomputed(ops: jax_calls.Ops, call: sequences.Call) -> None:
    """The backward that recomputes in spans of two steps, and the one that reads all steps."""
    values = sequences.random_values(call)
    plain, spans = Sequences(ops), Sequences(ops, recompute=2)
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


# ---- stacks, as check_stack.py checks them


class Stacks:
    """The ops of the cuDNN family with the interface of device_stack.Stack."""

    def __init__(self, ops: jax_calls.Ops):
        self.ops = ops

    def forward(self, call: cudnn_calls.Call, dtype: str, arrays, options: Options):
        op = cudnn_calls.FORWARD[call.version]
        outputs = self._call(op, call, dtype, arrays, options, is_training=True)
        found = {k: _encoded(v, dtype) for k, v in outputs.items() if k in cudnn_calls.OUTPUTS}
        if call.net.mode != "lstm":
            assert not found.pop("output_c"), "not a scalar 0"
        return found | {"all": outputs}

    def backward(self, call: cudnn_calls.Call, dtype: str, arrays, found, cotangents, options):
        given = dict(zip(cudnn_calls.OUTPUTS, cotangents, strict=True))
        given = arrays | {f"{name}_backprop": value for name, value in given.items()}
        op = cudnn_calls.BACKPROP[call.version]
        got = self._call(op, call, dtype, given, options, found["all"])
        return {k: _encoded(v, dtype) for k, v in got.items()}

    def _call(self, op, call: cudnn_calls.Call, dtype, arrays, options, laid_out=(), **attrs):
        """laid_out: more arrays, in the layout of the call."""
        given = {k: call.laid_out(v) for k, v in arrays.items()} | dict(laid_out)
        lengths = (call.steps,) * call.batch if call.lengths is None else call.lengths
        given["sequence_lengths"] = lengths
        # Of a program, which does not know the lengths.
        longest = dataclasses.replace(call, lengths=None)
        reserve = check_stack.reserve_parts(longest, dtype)[-1][3]
        sizes = {"D": call.net.directions, "S": reserve // block_cells.numpy_type(dtype).itemsize}
        self.ops.allow_tf32(options.allow_tf32)
        return self.ops.call(op, dtype, given, call.attrs() | attrs, sizes=sizes)


def stack_calls(on_gpu: bool) -> list[tuple]:
    """(call, type, whether TF32 may be used)"""
    found = []
    for (m, mode), (n, dtype) in itertools.product(enumerate(cudnn_calls.MODES), enumerate(DTYPES)):
        calls = cudnn_calls.odd_calls(mode)
        found += [(call, dtype, False) for call in calls[(m + n) % 2 :: 2]]
        old = cudnn_calls.Call(Network(mode, 2, 2, 5, 4), 3, 4, version=1 + (m + n) % 2)
        found.append((old, dtype, False))
        if on_gpu and dtype in ("float", "bfloat16"):
            large = cudnn_calls.Call(Network(mode, 2, 2, 64, 256), 20, 33)
            found += [(large, dtype, False), (large, dtype, True)]
    return found


def check_stack_call(ops: jax_calls.Ops, case: tuple) -> None:
    call, dtype, allow_tf32 = case
    check_stack.compare_stack(Stacks(ops), call, dtype, Options(allow_tf32=allow_tf32))


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
    attrs = cudnn_calls.Call(net).attrs() | {
        "num_params": len(weights),
        "num_params_weights": len(weights),
        "num_params_biases": len(biases),
        "S": "int64",
    }
    sizes = {"num_layers": net.layers, "num_units": net.units, "input_size": net.inputs}
    if not version:  # counts both lists by one attr
        assert len(weights) == len(biases)
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
        Sequences(ops).forward(call, sequences.random_values(call))

    def reserve(cut: int) -> None:
        call, options, stack = cudnn_calls.Call(Network("gru", 2, 2, 3, 4)), Options(), Stacks(ops)
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
    first, second = (check_sequences.all_bits(Sequences(ops), call) for _ in range(2))
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
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--prepare", type=pathlib.Path, metavar="FOLDER", help="write it, and end")
    add("--folder", type=pathlib.Path, help="as --prepare left it")
    add("--platform", choices=("cpu", "CUDA"), default="cpu")
    add("--library", type=pathlib.Path, help="the CUDA engine, for CUDA")
    arguments = parser.parse_args()
    if (arguments.prepare is None) == (arguments.folder is None):
        parser.error("either --prepare or --folder")
    if (arguments.platform == "CUDA") != (arguments.library is not None):
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


def checks_of(ops: jax_calls.Ops) -> dict[str, Callable[[], int]]:
    dims = ((3, 5, 7), (17, 33, 31), (65, 130, 63))
    steps = ((4, 3, 5, 7), (5, 9, 15, 33), (3, 33, 32, 64))
    kinds = {
        "block cells": (blocks(dims, block_cells.OPS), check_block),
        "block sequences": (blocks(steps, sequence_ops.OPS), check_block),
        **{
            f"sequences, {cell}": (
                sequence_calls(cell, ops.on_gpu),
                lambda ops, call: check_sequences.check_call(Sequences(ops), call),
            )
            for cell in sequences.CELLS
        },
        "recomputed": (
            [_of_op(sequences.Call(cell, (7, 4, 3, 6), dtype, lengths=(7, 1, 0, 4)))
             for cell in sequences.RECOMPUTED for dtype in DTYPES],
            check_recomputed,
        ),
        "stacks": (stack_calls(ops.on_gpu), check_stack_call),
        "parameters": (networks(), check_params),
        "same bits": (
            [_of_op(sequences.Call(cell, (9, 33, 20, 65), dtype))
             for cell in sequences.CELLS for dtype in ("float", "bfloat16")],
            same_bits,
        ),
        "two calls in a program": ((2, 33, 200), check_two_calls),
    }  # fmt: skip
    found = {
        name: functools.partial(each, name, cases, functools.partial(check, ops))
        for name, (cases, check) in kinds.items()
    }
    refused = refusals(ops)
    found["refused"] = lambda: each(
        "refused", refused, lambda words: check_refusal(ops, words, refused[words])
    )
    return found


def main() -> None:
    arguments = arguments_of()
    if arguments.prepare is not None:
        jax_calls.prepare(arguments.prepare)
        return
    jax = start_jax(arguments.platform)
    if arguments.platform == "CUDA":
        jax_calls.load_cublas()
    with tempfile.TemporaryDirectory() as at:
        ops = jax_calls.Ops(
            jax, arguments.platform, arguments.folder, engines(arguments.library), pathlib.Path(at)
        )
        try:
            check_program.run(checks_of(ops))
        finally:
            print(ops.ran(), flush=True)


if __name__ == "__main__":
    main()
