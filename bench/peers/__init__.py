"""The contenders of the sequence bench: one small adapter each, run in a process of its own.

To add one, write a module with a class that has base.Peer's methods, and add a line to PEERS.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.shapes import GATES, Case

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
    single: bool = True  # one layer, one direction, rows of one length
    stacks: bool = False  # any number of both, and lengths
    dtypes: tuple[str, ...] = ("float32",)
    as_layer: bool = False  # also as a layer of a model, plain and masked
    recurrent_dropout: bool = False  # as a layer
    cells_in: tuple[str, ...] = ()  # what drives Keras' cells
    environment: tuple[tuple[str, str], ...] = ()  # of its process
    precision: str = "float32"  # of the weights, where the call is of float32

    def does(self, case: Case) -> bool:
        """Whether it supports this case."""
        form = self.stacks if case.is_stack else self.single
        if case.as_layer:
            form = self.as_layer and (self.recurrent_dropout or not case.recurrent_dropout)
        if case.cells_in:
            form = case.cells_in in self.cells_in
        return (
            form
            and case.cell in self.cells
            and case.kind in self.kinds
            and case.dtype in self.dtypes
        )


_OF_CELLS: dict[str, Any] = {"cells": tuple(GATES), "single": False}
PEERS: dict[str, Entry] = {
    "ours": Entry("ours", "function", dtypes=_TYPES),
    "ours_cudnn": Entry("ours", "cudnn", cells=_CELLS, single=False, stacks=True),
    "ours_v4": Entry(  # without the instructions for bfloat16
        "ours", "function", dtypes=("bfloat16",),
        environment=(("TF_BLOCKRNN_CPU_ISA", "x86-64-v4"),),
    ),
    "ours_layer": Entry(
        "keras_layers", "after,ours", single=False, as_layer=True, recurrent_dropout=True
    ),
    "ours_block": Entry("ours", "block", gru_form="before"),
    "tf_raw": Entry("stock_tf", "", cells=("lstm",)),
    "keras": Entry("keras_layers", "after", as_layer=True, recurrent_dropout=True),
    "keras_xla": Entry("keras_layers", "after,xla", as_layer=True, recurrent_dropout=True),
    "keras_before": Entry(
        "keras_layers", "before", cells=("gru",), gru_form="before", default=False
    ),
    "keras_xla_before": Entry(
        "keras_layers", "before,xla", cells=("gru",), gru_form="before", default=False
    ),
    "ours_cell": Entry("keras_cells", "ours", **_OF_CELLS, cells_in=("RNN", "hand")),
    "ours_cell_xla": Entry("keras_cells", "ours,xla", **_OF_CELLS, cells_in=("RNN",)),
    "keras_cell": Entry("keras_cells", "keras", **_OF_CELLS, cells_in=("RNN", "hand")),
    "keras_cell_xla": Entry("keras_cells", "keras,xla", **_OF_CELLS, cells_in=("RNN",)),
    "torch": Entry("torch_rnn", "", cells=_CELLS, stacks=True, dtypes=_TYPES, as_layer=True),
    "onnxruntime": Entry("onnx_rnn", "after", cells=_CELLS, kinds=("infer",), stacks=True),
    "onnxruntime_before": Entry(
        "onnx_rnn", "before", cells=("gru",), kinds=("infer",), gru_form="before"
    ),
    # Whole Python calls with weights that no longer change.
    "ours_session": Entry("session", "float32", kinds=("serve",)),
    "ours_session_bfloat16": Entry("session", "bfloat16", kinds=("serve",), precision="bfloat16"),
    "ours_session_int8": Entry("session", "int8", kinds=("serve",), precision="int8"),
    "onnxruntime_call": Entry("onnx_rnn", "after,call", kinds=("serve",)),
    "onnxruntime_one": Entry("onnx_rnn", "after,call,one", kinds=("serve",)),  # one thread
    "torch_call": Entry("torch_rnn", "call", kinds=("serve",)),
    "onnxruntime_int8": Entry(
        "onnx_rnn", "after,call,int8", cells=("lstm",), kinds=("serve",), precision="int8"
    ),
    "torch_int8": Entry("torch_rnn", "call,int8", kinds=("serve",), precision="int8"),
    # Keras models, compiled by XLA.
    "ours_model": Entry(
        "keras_models", "after,ours", kinds=("serve",), single=False, as_layer=True
    ),
    "ours_frozen": Entry(
        "keras_models", "after,ours,frozen", kinds=("serve",), single=False, as_layer=True
    ),
}  # fmt: skip
