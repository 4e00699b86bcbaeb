"""The block cell ops against TensorFlow's own, in one process and one alternating run.

One process, because both are kernels of the same runtime: same executor, same thread pool, same
allocator. What differs is the kernel.

Why a chain: calling a tf.function from Python costs tens of microseconds, more than a small cell
takes. A cell is used inside a loop that passes its state from step to step, so that is what is
timed: one tf.function with `calls` ops, each taking the state (or the gradient of the state) of the
previous one. This divides the cost of the function call by `calls`, includes the graph executor's
cost per op, which users pay too, and keeps the graph optimiser from merging equal ops. The weights
are the same at each call, as in a loop. Both contenders are timed in the same chain, so the
remaining cost of the call only moves the ratio towards 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench import tidy, timing

OPS = ("GRUBlockCell", "GRUBlockCellGrad", "LSTMBlockCell", "LSTMBlockCellGrad")

# A chain is about this much work, between these numbers of calls.
_CHAIN_FLOPS = 1e9
_MIN_CALLS, _MAX_CALLS = 4, 32
# Both contenders must compute the same thing, or the comparison is meaningless. The bound is loose:
# a chain of 32 float32 cells, summed in another order.
_MAX_DIFFERENCE = 1e-3

Shape = tuple[int, int, int]


def flops(op: str, shape: Shape) -> int:
    """Floating point operations of the GEMMs in one call; LSTMBlockCellGrad has none."""
    batch, inputs, units = shape
    gates = {"GRUBlockCell": 3, "GRUBlockCellGrad": 3, "LSTMBlockCell": 4, "LSTMBlockCellGrad": 0}
    return 2 * batch * (inputs + units) * gates[op] * units


def calls_per_chain(op: str, shape: Shape) -> int:
    """The number of calls in one measured tf.function."""
    work = flops(op, shape)
    return _MAX_CALLS if not work else max(_MIN_CALLS, min(_MAX_CALLS, int(_CHAIN_FLOPS / work)))


def make_inputs(op: str, shape: Shape) -> dict[str, Any]:
    """The op's arguments as float32 tensors; a Grad's residuals come from a real forward pass."""
    import tensorflow as tf

    batch, inputs, units = shape
    rng = np.random.default_rng(20)

    def normal(*dims: int) -> tf.Tensor:
        return tf.constant(rng.standard_normal(dims), tf.float32)

    def weight(*dims: int) -> tf.Tensor:
        # The range of Keras' and PyTorch's initialisers, so that no gate saturates.
        bound = 1.0 / np.sqrt(units)
        return tf.constant(rng.uniform(-bound, bound, dims), tf.float32)

    if op.startswith("GRU"):
        args = {
            "x": normal(batch, inputs),
            "h_prev": tf.tanh(normal(batch, units)),
            "w_ru": weight(inputs + units, 2 * units),
            "w_c": weight(inputs + units, units),
            "b_ru": weight(2 * units),
            "b_c": weight(units),
        }
        if op.endswith("Grad"):
            r, u, c, _ = tf.raw_ops.GRUBlockCell(**args)
            args |= {"r": r, "u": u, "c": c, "d_h": normal(batch, units)}
        return args
    args = {
        "x": normal(batch, inputs),
        "cs_prev": normal(batch, units),
        "h_prev": tf.tanh(normal(batch, units)),
        "w": weight(inputs + units, 4 * units),
        "wci": tf.zeros([units]),
        "wcf": tf.zeros([units]),
        "wco": tf.zeros([units]),
        "b": weight(4 * units),
    }
    if op.endswith("Grad"):
        i, cs, f, o, ci, co, _ = tf.raw_ops.LSTMBlockCell(**args)
        args |= {"i": i, "cs": cs, "f": f, "o": o, "ci": ci, "co": co}
        args |= {"cs_grad": normal(batch, units), "h_grad": normal(batch, units)}
        args["use_peephole"] = False
    return args


# What each op passes to the next call of the chain: argument from output.
_RECURRENT_ARGS = {
    "GRUBlockCell": {"h_prev": "h"},
    "GRUBlockCellGrad": {"d_h": "d_h_prev"},
    "LSTMBlockCell": {"cs_prev": "cs", "h_prev": "h"},
    "LSTMBlockCellGrad": {"cs_grad": "cs_prev_grad"},
}


def make_chain(op: str, raw_ops: Any, args: dict[str, Any], calls: int) -> Callable[[], Any]:
    """A tf.function of `calls` consecutive ops of `raw_ops` (tf.raw_ops or tf_blockrnn.raw_ops).

    It returns the outputs of the last one, on which both contenders are compared.
    """
    import tensorflow as tf

    function = getattr(raw_ops, op)
    recurrent_args = _RECURRENT_ARGS[op]

    @tf.function(jit_compile=False, autograph=False)
    def chain():
        state = {name: args[name] for name in recurrent_args}
        for _ in range(calls):
            out = function(**(args | state))
            state = {name: getattr(out, field) for name, field in recurrent_args.items()}
        return tuple(out)

    return chain.get_concrete_function()


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> float:
    """The largest difference of any output, relative to that output's largest value."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if b.size:
            worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)))
    return worst


def measure(
    contenders: dict[str, Any],
    op: str,
    shape: Shape,
    plan: timing.Plan,
    note: Callable[[str], None],
) -> list[tidy.Row]:
    """The rows of one op and shape. contenders: the raw ops of ours and of TensorFlow."""
    calls = calls_per_chain(op, shape)
    args = make_inputs(op, shape)
    chains = {name: make_chain(op, raw, args, calls) for name, raw in contenders.items()}
    difference = _difference(chains["ours"](), chains["tf"]())
    if not difference <= _MAX_DIFFERENCE:
        raise RuntimeError(f"{op} {shape}: ours differs from TensorFlow's by {difference:.1e}")
    case = {
        "op": op, "shape": list(shape), "calls_per_function": calls,
        "flops": flops(op, shape), "difference": difference,
    }  # fmt: skip
    runners = {name: timing.in_process(chain) for name, chain in chains.items()}
    return tidy.measured(case, runners, plan, note, per=calls)


def run(
    cases: Sequence[tuple[str, Shape]], tf: Any, plan: timing.Plan, threads: int
) -> dict[str, Any]:
    """Measures all `cases`; returns the result as it is stored in the JSON."""
    import tf_blockrnn

    contenders = {"ours": tf_blockrnn.raw_ops, "tf": tf.raw_ops}
    result = tidy.new("cells", threads, plan)
    return tidy.collect(result, cases, lambda case, note: measure(contenders, *case, plan, note))
