"""Calls of all ops with second derivatives: of the sequence functions, block ops and stacks."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from helpers import block_cells, cudnn_ops, plain_recurrences, sequence_ops, tolerances
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network
from helpers.second_cases import CASES, Case, Differentiable

T, B, I, H = 4, 3, 2, 3  # noqa: E741  the contracts' names
LENGTHS = (4, 0, 2)


class BlockCase(Differentiable):
    """A cell or a block op: all its outputs have cotangents, or h alone."""

    bound = tolerances.second_bound("double", 2 * T * (I + 2 * H))

    def __init__(
        self, op, attrs=None, valid=None, only_h=False, *,
        steps=T, batch=B, inputs=I, dtype=np.float64,
    ):  # fmt: skip
        self.op, self.attrs, self.sequence = op, attrs or {}, "seq_len_max" in op.inputs
        self.valid = steps if valid is None else min(valid, steps)
        self.outputs = ["h"] if only_h else list(op.outputs)
        dims = (steps, batch, inputs, H)[-len(op.sizes) :]
        self.inputs = block_cells.random_inputs(op, dims, dtype)
        self.inputs.pop("seq_len_max", None)
        shapes = op.output_shapes(dims)
        self.cotangents = {
            f"cotangent {name}": np.random.default_rng([7, seed])
            .normal(size=shapes[name])
            .astype(dtype)
            for seed, name in enumerate(self.outputs)
        }

    def padding(self):
        return [(v, np.s_[self.valid :]) for v in (self.inputs["x"], *self.cotangents.values())]

    def call(self, tfb, tensors):
        given = dict(tensors)
        if self.sequence:
            given["seq_len_max"] = tf.constant(self.valid, tf.int64)
        made = getattr(tfb.raw_ops, self.op.name)(**given, **self.attrs)
        return [getattr(made, name) for name in self.outputs]

    def clipped(self, tensors):
        """The same in TensorFlow's ops, of an LSTM."""
        given = dict(tensors)
        if not self.sequence:  # a sequence of one step
            given["x"] = given["x"][tf.newaxis]
        v2 = self.op.name.endswith("V2")
        made = plain_recurrences.block_lstm(
            given,
            "ifco" if v2 else "icfo",
            self.valid,
            self.attrs["cell_clip"],
            forget_bias=0.0 if v2 else 1.0,
            use_peephole=self.attrs.get("use_peephole", False),
        )
        return [made[name] if self.sequence else made[name][0] for name in self.outputs]


class CudnnCase(Differentiable):
    """A stack of CudnnRNN, with what its mode does not read left out of the inputs."""

    bound = BlockCase.bound

    def __init__(self, net, *, steps=T, batch=B, dtype="double", **options):
        lengths = tuple(min(n, steps) for n in LENGTHS[:batch])
        lengths = lengths if options.get("version", 3) == 3 else None
        self.cudnn = Call(net, steps, batch, lengths, **options)
        lstm = net.mode == "lstm"
        arrays = self.cudnn.random(dtype)
        self.fixed = {} if lstm else {"input_c": tf.constant(arrays.pop("input_c"))}
        self.inputs = {name: self.cudnn.laid_out(value) for name, value in arrays.items()}
        self.cotangents = {
            f"cotangent {name}": self.cudnn.laid_out(value)
            for name, value in zip(
                cudnn_ops.OUTPUTS[: 2 + lstm], self.cudnn.cotangents(dtype), strict=False
            )
        }
        if lengths is not None:
            self.fixed["sequence_lengths"] = tf.constant(lengths, tf.int32, [batch])

    def call(self, tfb, tensors):
        made = self.cudnn.forward(tfb.raw_ops, {**self.fixed, **tensors})
        return list(made[: len(self.cotangents)])

    def padding(self):
        past = np.arange(self.cudnn.steps)[:, np.newaxis] >= np.array(self.cudnn.lengths)
        place = past if self.cudnn.time_major else past.T
        return [(self.inputs["input"], place), (self.cotangents["cotangent output"], place)]


_BLOCK = {
    "LSTM cell": (block_cells.LSTM, {"cell_clip": 0.0}),
    "LSTM cell peepholes": (block_cells.LSTM, {"cell_clip": 0.0, "use_peephole": True}),
    "GRU cell": (block_cells.GRU,),
    "BlockLSTM": (sequence_ops.LSTM, {"cell_clip": 0.0}),
    "BlockLSTM peepholes": (
        sequence_ops.LSTM, {"use_peephole": True, "forget_bias": 0.5, "cell_clip": 0.0}, T - 1,
    ),
    "BlockLSTM h": (sequence_ops.LSTM, {"cell_clip": 0.0}, T - 1, True),
    "BlockLSTMV2": (sequence_ops.LSTM_V2, {}, T - 1),
    "BlockLSTMV2 peepholes": (sequence_ops.LSTM_V2, {"use_peephole": True}),
    "BlockLSTMV2 h": (sequence_ops.LSTM_V2, {}, None, True),
    "BlockGRU": (sequence_ops.GRU, {}, T - 1),
    "BlockGRU h": (sequence_ops.GRU, {}, None, True),
}  # fmt: skip
# With a bound, whose derivative is 1 and not that of finite differences.
_CLIPPED = {
    "LSTM cell clip": (block_cells.LSTM, {"use_peephole": True, "cell_clip": 0.25}),
    "BlockLSTM clip": (sequence_ops.LSTM, {"use_peephole": True, "cell_clip": 0.25}, T - 1),
    "BlockLSTMV2 clip": (sequence_ops.LSTM_V2, {"cell_clip": 0.25}, T),
}
_CUDNN = {
    "stack lstm": (Network("lstm", 1, 1, 3, 4), {}),
    "stack lstm V1": (Network("lstm", 2, 1, 3, 2), {"version": 1}),
    "stack lstm V2": (Network("lstm", 1, 2, 2, 3), {"version": 2}),
    "stack lstm projected": (Network("lstm", 1, 1, 3, 3, 2), {"time_major": False}),
    "stack lstm all": (Network("lstm", 2, 2, 3, 3, 2), {"time_major": False}),
    "stack lstm skip": (Network("lstm", 2, 1, 3, 3, 0, True), {}),
    "stack gru": (Network("gru", 2, 2, 3, 2), {}),
    "stack gru V2": (Network("gru", 1, 2, 3, 3, 0, True), {"version": 2}),
    "stack gru batch-major": (Network("gru", 2, 1, 2, 3), {"time_major": False}),
    "stack rnn_tanh": (Network("rnn_tanh", 3, 2, 3, 2), {}),
    "stack rnn_tanh V1": (Network("rnn_tanh", 2, 1, 2, 3), {"version": 1}),
    "stack rnn_relu": (Network("rnn_relu", 2, 2, 3, 3), {}),
    "stack rnn_relu skip": (Network("rnn_relu", 1, 2, 3, 3, 0, True), {"auto_select": True}),
}
_DROPOUT = {
    "stack lstm dropout": (Network("lstm", 2, 1, 3, 4, 3), {"time_major": False}),
    "stack gru V2 dropout": (Network("gru", 2, 2, 3, 3), {"version": 2}),
    "stack rnn_tanh dropout": (Network("rnn_tanh", 3, 1, 3, 5), {}),
}
for _net, _options in _DROPOUT.values():
    _options |= {"dropout": 0.4, "seeds": (3, 4)}
CLIPPED, DROPOUT = tuple(_CLIPPED), tuple(_DROPOUT)
SMOOTH = (*CASES, *_BLOCK, *_CUDNN)
# One of each implementation: a cell, a walk over steps, a stack of walks.
IMPLEMENTATIONS = ("LSTM cell peepholes", "BlockLSTMV2", "stack rnn_tanh V1")
# One of each gradient op, and of each cell.
FAMILIES = (
    "LSTM cell peepholes", "GRU cell", "BlockLSTM peepholes", "BlockLSTMV2", "BlockGRU",
    "stack lstm V1", "stack lstm projected", "stack gru V2", "stack rnn_tanh V1",
    "lstm all", "gru after", "gru before all", "rnn tanh",
)  # fmt: skip


def make(case, **more):
    """The case of this name; more: steps, batch, dtype, and what a kind of case has beside."""
    if case in CASES:
        return Case(case, **more)
    if case in _BLOCK or case in _CLIPPED:
        return BlockCase(*(_BLOCK | _CLIPPED)[case], **more)
    net, options = (_CUDNN | _DROPOUT)[case]
    return CudnnCase(net, **{**options, **more})
