"""The contenders of the sequence bench: one small adapter each, run in a process of its own.

To add one, write a module with a class that has base.Peer's methods, and add a line to PEERS.
"""

from __future__ import annotations

import dataclasses

from bench.shapes import Case

_TYPES = ("float32", "bfloat16")
_CELLS = ("lstm", "gru", "rnn")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A peer's adapter and the cases that it supports."""

    module: str  # under bench.peers
    option: str  # passed to the adapter's constructor
    cells: tuple[str, ...] = ("lstm", "gru")
    kinds: tuple[str, ...] = ("infer", "train")
    gru_form: str = "after"  # the reset gate acts "before" or "after" the recurrent GEMM
    default: bool = True  # runs unless other peers are selected
    note: str = ""
    single: bool = True  # one layer, one direction, rows of one length
    stacks: bool = False  # any number of both, and lengths
    dtypes: tuple[str, ...] = ("float32",)
    as_layer: bool = False  # also as a layer of a model, plain and masked
    recurrent_dropout: bool = False  # as a layer
    environment: tuple[tuple[str, str], ...] = ()  # of its process
    precision: str = "float32"  # of the weights, where the call is of float32

    def does(self, case: Case) -> bool:
        """Whether it supports this case."""
        form = self.stacks if case.is_stack else self.single
        if case.as_layer:
            form = self.as_layer and (self.recurrent_dropout or not case.recurrent_dropout)
        return (
            form
            and case.cell in self.cells
            and case.kind in self.kinds
            and case.dtype in self.dtypes
        )


PEERS: dict[str, Entry] = {
    "ours": Entry("ours", "function", dtypes=_TYPES, note="tf_blockrnn.lstm, tf_blockrnn.gru"),
    "ours_cudnn": Entry(
        "ours", "cudnn", cells=_CELLS, single=False, stacks=True, note="BlockRNN>CudnnRNNV3",
    ),
    "ours_v4": Entry(
        "ours", "function", dtypes=("bfloat16",),
        environment=(("TF_BLOCKRNN_CPU_ISA", "x86-64-v4"),),
        note="the same as ours without the instructions for bfloat16",
    ),
    "ours_layer": Entry(
        "keras_layers", "after,ours", single=False, as_layer=True, recurrent_dropout=True,
        note="tf_blockrnn.layers in tf.function",
    ),
    "ours_block": Entry("ours", "block", gru_form="before", note="BlockLSTMV2, BlockGRU"),
    "tf_raw": Entry("stock_tf", "", cells=("lstm",), note="tf.raw_ops.BlockLSTMV2 and its Grad"),
    "keras": Entry(
        "keras_layers", "after", as_layer=True, recurrent_dropout=True,
        note="keras.layers in tf.function",
    ),
    "keras_xla": Entry(
        "keras_layers", "after,xla", as_layer=True, recurrent_dropout=True,
        note="the same with jit_compile=True",
    ),
    "keras_before": Entry(
        "keras_layers", "before", cells=("gru",), gru_form="before", default=False,
        note="keras.layers.GRU(reset_after=False)",
    ),
    "keras_xla_before": Entry(
        "keras_layers", "before,xla", cells=("gru",), gru_form="before", default=False,
        note="the same with jit_compile=True",
    ),
    "torch": Entry(
        "torch_rnn", "", cells=_CELLS, stacks=True, dtypes=_TYPES, as_layer=True,
        note="torch.nn.LSTM, GRU and RNN",
    ),
    "onnxruntime": Entry(
        "onnx_rnn", "after", cells=_CELLS, kinds=("infer",), stacks=True,
        note="LSTM, GRU and RNN nodes",
    ),
    "onnxruntime_before": Entry(
        "onnx_rnn", "before", cells=("gru",), kinds=("infer",), gru_form="before",
        note="GRU with linear_before_reset=0",
    ),
    # Whole Python calls with weights that no longer change.
    "ours_session": Entry("session", "float32", kinds=("serve",), note="inference.Session"),
    "ours_session_bfloat16": Entry(
        "session", "bfloat16", kinds=("serve",), precision="bfloat16",
        note='the same with precision="bfloat16"',
    ),
    "ours_session_int8": Entry(
        "session", "int8", kinds=("serve",), precision="int8",
        note='the same with precision="int8"',
    ),
    "onnxruntime_call": Entry(
        "onnx_rnn", "after,call", kinds=("serve",), note="InferenceSession.run"
    ),
    "onnxruntime_one": Entry(
        "onnx_rnn", "after,call,one", kinds=("serve",), note="the same on one thread"
    ),
    "torch_call": Entry(
        "torch_rnn", "call", kinds=("serve",), note="torch.nn.LSTM and GRU, of arrays"
    ),
    "onnxruntime_int8": Entry(
        "onnx_rnn", "after,call,int8", cells=("lstm",), kinds=("serve",), precision="int8",
        note="DynamicQuantizeLSTM, of onnxruntime.quantization",
    ),
    "torch_int8": Entry(
        "torch_rnn", "call,int8", kinds=("serve",), precision="int8",
        note="torch.ao.quantization.quantize_dynamic",
    ),
    "ours_model": Entry(
        "keras_models", "after,ours", kinds=("serve",), single=False, as_layer=True,
        note="a Keras model with a layer of tf_blockrnn, compiled by XLA",
    ),
    "ours_frozen": Entry(
        "keras_models", "after,ours,frozen", kinds=("serve",), single=False, as_layer=True,
        note="the same after tf_blockrnn.freeze",
    ),
}  # fmt: skip


def is_ours(name: str) -> bool:
    """Whether `name` is this project's own contender."""
    return name.startswith("ours")
