"""Calls of the block ops and of the cuDNN ops whose second derivatives are tested."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from helpers import block_cells, cudnn_ops, plain_recurrences, sequence_ops, tolerances
from helpers.cudnn_ops import Call
from helpers.reference.stack import Network
from helpers.second_cases import Differentiable

DIMS = T, B, I, H = 4, 3, 2, 3  # noqa: E741  the contracts' names
BOUND = tolerances.second_bound("double", 2 * T * (I + 2 * H))
LENGTHS = (4, 0, 2)


class BlockCase(Differentiable):
    """A cell or a block op: all its outputs have cotangents, or h alone."""

    def __init__(self, op, attrs=None, valid=None, only_h=False, dims=DIMS, dtype=np.float64):
        self.op, self.attrs, self.dims = op, attrs or {}, dims
        self.valid = dims[0] if valid is None else valid
        self.sequence = "seq_len_max" in op.inputs
        self.outputs = ["h"] if only_h else list(op.outputs)
        dims = dims if self.sequence else dims[1:]
        self.inputs = block_cells.random_inputs(op, dims, dtype)
        self.inputs.pop("seq_len_max", None)
        shapes = op.output_shapes(dims)
        self.cotangents = {
            f"cotangent {name}": _random(shapes[name], seed).astype(dtype)
            for seed, name in enumerate(self.outputs)
        }

    def call(self, tfb, tensors):
        given = dict(tensors)
        if self.sequence:
            given["seq_len_max"] = tf.constant(self.valid, tf.int64)
        made = getattr(tfb.raw_ops, self.op.name)(**given, **self.attrs)
        return [getattr(made, name) for name in self.outputs]

    def plain(self, tensors):
        """The same in TensorFlow's ops."""
        given = dict(tensors)
        if not self.sequence:  # a sequence of one step
            given["x"] = given["x"][tf.newaxis]
        if "LSTM" in self.op.name:
            v2 = self.op.name.endswith("V2")
            made = plain_recurrences.block_lstm(
                given,
                "ifco" if v2 else "icfo",
                self.valid,
                forget_bias=0.0 if v2 else self.attrs.get("forget_bias", 1.0),
                clip=self.attrs.get("cell_clip", 0.0 if v2 else 3.0),
                use_peephole=self.attrs.get("use_peephole", False),
            )
        else:
            made = plain_recurrences.block_gru(given, self.valid)
        return [made[name] if self.sequence else made[name][0] for name in self.outputs]


class CudnnCase(Differentiable):
    """A stack of CudnnRNN, with what its mode does not read left out of the inputs."""

    def __init__(self, net, dtype="double", **options):
        self.net = net
        options = {"lengths": LENGTHS if options.get("version", 3) == 3 else None, **options}
        self.cudnn = Call(net, **{"steps": T, "batch": B, **options})
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
        if self.cudnn.version == 3:
            lengths = (self.cudnn.steps,) * self.cudnn.batch
            self.fixed["sequence_lengths"] = tf.constant(
                self.cudnn.lengths or lengths, tf.int32, [self.cudnn.batch]
            )

    def call(self, tfb, tensors):
        made = self.cudnn.forward(tfb.raw_ops, {**self.fixed, **tensors})
        return list(made[: len(self.cotangents)])

    def plain(self, tensors):
        """The same in TensorFlow's ops, without dropout."""

        def laid_out(name, value):
            if self.cudnn.time_major or name == "params":
                return value
            return tf.transpose(value, [1, 0, 2])

        given = {name: laid_out(name, value) for name, value in tensors.items()}
        lengths = self.cudnn.lengths or (self.cudnn.steps,) * self.cudnn.batch
        made = plain_recurrences.stack(self.net, given, lengths)
        return [laid_out("", value) for value in made]


def _random(shape, seed):
    return np.random.default_rng([7, seed]).normal(size=shape)


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
    "lstm": (Network("lstm", 1, 1, 3, 4), {}),
    "lstm V1": (Network("lstm", 2, 1, 3, 2), {"version": 1}),
    "lstm V2": (Network("lstm", 1, 2, 2, 3), {"version": 2}),
    "lstm projected": (Network("lstm", 1, 1, 3, 3, 2), {"time_major": False}),
    "lstm all": (Network("lstm", 2, 2, 3, 3, 2), {"time_major": False}),
    "lstm skip": (Network("lstm", 2, 1, 3, 3, 0, True), {}),
    "gru": (Network("gru", 2, 2, 3, 2), {}),
    "gru V2": (Network("gru", 1, 2, 3, 3, 0, True), {"version": 2}),
    "gru batch-major": (Network("gru", 2, 1, 2, 3), {"time_major": False}),
    "rnn_tanh": (Network("rnn_tanh", 3, 2, 3, 2), {}),
    "rnn_tanh V1": (Network("rnn_tanh", 2, 1, 2, 3), {"version": 1}),
    "rnn_relu": (Network("rnn_relu", 2, 2, 3, 3), {}),
    "rnn_relu skip": (Network("rnn_relu", 1, 2, 3, 3, 0, True), {"auto_select": True}),
}
_DROPOUT = {
    "lstm dropout": (Network("lstm", 2, 2, 3, 4, 3), {"time_major": False}),
    "lstm V1 dropout": (Network("lstm", 2, 1, 3, 5), {"version": 1}),
    "gru V2 dropout": (Network("gru", 2, 2, 3, 3), {"version": 2}),
    "rnn_tanh dropout": (Network("rnn_tanh", 3, 1, 3, 5), {}),
    "rnn_relu dropout": (Network("rnn_relu", 2, 2, 3, 5), {}),
}
for _net, _options in _DROPOUT.values():
    _options |= {"dropout": 0.4, "seeds": (3, 4)}
UNCLIPPED = tuple(_BLOCK) + tuple(_CUDNN)
DROPOUT = tuple(_DROPOUT)
PLAIN = UNCLIPPED + tuple(_CLIPPED)
# One of each implementation: a cell, a walk over steps, a stack of walks.
IMPLEMENTATIONS = ("LSTM cell peepholes", "BlockLSTMV2", "rnn_tanh V1")
# One of each gradient op, and of each cell.
FAMILIES = (
    "LSTM cell peepholes", "GRU cell", "BlockLSTM peepholes", "BlockLSTMV2", "BlockGRU", "lstm V1",
    "lstm projected", "gru V2", "rnn_tanh V1",
)  # fmt: skip


def make(case, **more):
    """The case of this name."""
    if case in _CUDNN or case in _DROPOUT:
        net, options = (_CUDNN | _DROPOUT)[case]
        return CudnnCase(net, **{**options, **more})
    given = (_BLOCK | _CLIPPED)[case]
    return BlockCase(*given, **more)
