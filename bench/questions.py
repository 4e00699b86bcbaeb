"""The questions that the results answer: for each one table and one plot, as data.

tables.py and plot.py make them; pages.py puts them on the pages in this order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

# How the fields of a row are written, where it is not their value.
WORDS = {
    "lstm": "LSTM", "gru": "GRU", "rnn": "simple RNN", "gru_before": "GRU, reset before",
    "ln_lstm": "LSTM, layer norm", "ln_gru": "GRU, layer norm",
    "infer": "inference", "train": "training", "serve": "",
    "full": "full rows", "spread": "rows of all lengths", "half": "half rows",
    "recurrent_dropout": "recurrent dropout",
    "bytes": "memory, MiB", "ms": "time, ms",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Column:
    """A number in each row of a table."""

    label: str
    contenders: tuple[str, ...]  # the fastest of them counts
    # A contender, relative to which they are shown; or "peak", the GEMM peak.
    over: str = ""
    unit: str = ""  # of a number that is not a ratio; empty: MiB or ms, as the row says
    ours_is_over: bool = True  # a ratio below 1 means that we are slower

    @property
    def is_ratio(self) -> bool:
        """Whether it is a contender's time, or memory, over another's."""
        return self.over not in ("", "peak")


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, and how a result answers it."""

    name: str  # the heading of its section
    asks: str
    text: str  # what was measured, and how
    columns: tuple[Column, ...]
    bench: str = ""  # that answers it, if it is not that of its name
    only: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    rows: tuple[str, ...] = ("cell", "kind", "shape")  # the fields that make up a row
    across: str = ""  # a field whose values are columns of the same row
    panels: tuple[str, ...] = ("cell", "kind")  # of the plot
    dims: str = "B, T, I, H"
    plotted: bool = True

    @property
    def result(self) -> str:
        """The name of the result."""
        return self.bench or self.key

    @property
    def key(self) -> str:
        """The name in lower case without spaces, for files, anchors and sections of pages."""
        return self.name.lower().replace(" ", "-")


def _ms(label: str, contender: str) -> Column:
    return Column(label, (contender,), unit="ms")


def _us(label: str, contender: str) -> Column:
    return Column(label, (contender,), unit="µs")


def _over(label: str, *contenders: str, ours: str = "ours") -> Column:
    return Column(label, contenders, over=ours)


_RECOMPUTE = ("recompute=True", *(f"recompute={2**n}" for n in range(7, 13)))

QUESTIONS = (
    Question(
        "Layers",
        "How many times as fast as Keras' and PyTorch's layers are ours?",
        "float32; training is forward and backward to the input and all weights. Keras runs in a"
        " `tf.function` with or without XLA, whichever is faster. Masked: rows of random lengths,"
        " T / 2 on average, padded on the right, which PyTorch takes as a packed sequence."
        " Recurrent dropout: 0.3, which PyTorch does not have.",
        (
            _ms("ours", "ours_layer"),
            _over("Keras / ours", "keras", "keras_xla", ours="ours_layer"),
            _over("PyTorch / ours", "torch", ours="ours_layer"),
        ),
        only={"set": ("grid",)},
        across="variant",
    ),
    Question(
        "Sequences",
        "How many times as fast as other libraries are our functions and ops?",
        "One layer, one call, float32; training is forward and backward. Ours is `tf_blockrnn.lstm`"
        " or `gru` in a `tf.function`, our block op `BlockLSTMV2` or `BlockGRU`, TensorFlow's"
        " `tf.raw_ops.BlockLSTMV2` and its Grad. Keras as for layers; PyTorch's modules; ONNX"
        " Runtime's LSTM and GRU nodes. The block op's GRU has the reset gate before the GEMM and"
        " is compared with nodes that have it there too. Of peak: the speed of the GEMMs relative"
        " to a large GEMM on that machine.",
        (
            _ms("ours", "ours"),
            _over("Keras / ours", "keras", "keras_xla"),
            _over("PyTorch / ours", "torch"),
            _over("ONNX Runtime / ours", "onnxruntime"),
            _ms("block op", "ours_block"),
            _over("TensorFlow / block op", "tf_raw", ours="ours_block"),
            _over("ONNX Runtime / block op", "onnxruntime_before", ours="ours_block"),
            Column("ours of peak", ("ours",), over="peak"),
        ),
        only={"set": ("grid", "hard")},
    ),
    Question(
        "Stacks",
        "How many times as fast as PyTorch's and ONNX Runtime's stacks is the cuDNN op?",
        "`BlockRNN>CudnnRNNV3`, float32, two layers, both directions; all rows of T steps, rows of"
        " all lengths from 1 to T, or all of T / 2.",
        (
            _ms("ours", "ours_cudnn"),
            _over("PyTorch / ours", "torch", ours="ours_cudnn"),
            _over("ONNX Runtime / ours", "onnxruntime", ours="ours_cudnn"),
        ),
        across="lengths",
        panels=("kind",),
    ),
    Question(
        "bfloat16",
        "How many times as fast as float32, and as PyTorch, is bfloat16 with AVX512-BF16?",
        "`tf_blockrnn.lstm` and `gru`; AVX-512 is ours in bfloat16 without the instructions for"
        " bfloat16.",
        (
            _ms("ours", "ours bfloat16"),
            _over("AVX-512 / ours", "ours_v4 bfloat16", ours="ours bfloat16"),
            _over("float32 / ours", "ours", ours="ours bfloat16"),
            _over("PyTorch / ours", "torch bfloat16", ours="ours bfloat16"),
        ),
        rows=("cell", "shape"),
        across="kind",
        panels=("cell",),
    ),
    Question(
        "Inference",
        "How many times as fast as PyTorch and ONNX Runtime is a session?",
        "Whole Python calls, NumPy in and NumPy out, with packed weights; calls of one step are"
        " `Session.step`. ONNX Runtime on one thread or all, whichever is faster; int8 weights"
        " against int8 weights of the others.",
        (
            _us("float32", "ours_session"),
            _over("ONNX Runtime / ours", "onnxruntime_call", "onnxruntime_one",
                  ours="ours_session"),
            _over("PyTorch / ours", "torch_call", ours="ours_session"),
            _us("bfloat16", "ours_session_bfloat16"),
            _us("int8", "ours_session_int8"),
            _over("ONNX Runtime / ours, int8", "onnxruntime_int8", ours="ours_session_int8"),
            _over("PyTorch / ours, int8", "torch_int8", ours="ours_session_int8"),
        ),
        only={"set": ("sessions",)},
        panels=("cell",),
    ),
    Question(
        "Frozen models",
        "How many times as fast does `tf_blockrnn.freeze` make a Keras model?",
        "A call of the concrete function of a model with one layer, compiled by XLA.",
        (
            _us("model", "ours_model"),
            _us("frozen", "ours_frozen"),
            _over("model / frozen", "ours_model", ours="ours_frozen"),
        ),
        bench="inference",
        only={"set": ("models",)},
        rows=("shape",),
        across="cell",
        plotted=False,
    ),
    Question(
        "Calls",
        "What does a call cost beside its op?",
        "Inference. An op in a graph is what each of ten more adds; an empty function reads a"
        " variable. Weights are variables, but for \"eager, tensors\".",
        tuple(
            _us(name, name)
            for name in (
                "op in a graph", "eager, tensors", "eager", "eager, layer", "concrete function",
                "tf.function", "tf.function, layer", "empty function",
            )
        ),
        panels=("cell",),
    ),
    Question(
        "Calls with XLA",
        "What does a call cost with XLA and without?",
        "All ways of calling, float32.",
        (
            *(
                _us(name, name)
                for name in (
                    "eager", "tf.function", "concrete function", "tf.function, XLA",
                    "concrete function, XLA", "empty function", "empty function, XLA",
                )
            ),
            _over("concrete / concrete, XLA", "concrete function", ours="concrete function, XLA"),
        ),
        bench="jit",
        only={"set": ("calls",)},
        plotted=False,
    ),
    Question(
        "Steps of fit",
        "How many times as fast as Keras is a step of `fit` with our layers?",
        "float32, Adam; an embedding of E numbers, two recurrent layers of H units and a softmax"
        " over 100 characters at every step.",
        (
            _ms("ours", "ours"),
            _ms("ours, XLA", "ours, XLA"),
            _over("Keras / ours", "Keras"),
            _over("Keras, XLA / ours, XLA", "Keras, XLA", ours="ours, XLA"),
        ),
        bench="jit",
        only={"set": ("fit",)},
        rows=("shape",),
        across="cell",
        panels=(),
        dims="B, T, E, H",
    ),
    Question(
        "Cells",
        "How many times as fast as TensorFlow's block cells are ours?",
        "One step, float32.",
        (
            _us("ours", "ours"),
            _over("TensorFlow / ours", "tf"),
        ),
        rows=("shape",),
        across="op",
        panels=(),
        dims="B, I, H",
    ),
    Question(
        "Cells in loops",
        "How many times as fast as Keras' cells are ours in `keras.layers.RNN`?",
        "`keras.layers.RNN` over one cell in a `tf.function`, float32; training is forward and"
        " backward to the input and all weights. Keras runs with or without XLA, whichever is"
        " faster, and in the last column both with it. GRU has the reset gate after the GEMM unless"
        " the row says before. Keras has no cells with layer normalisation: they are compared with"
        " cells on Keras' operations, `bench/peers/keras_cells.py`.",
        (
            _ms("ours", "ours_cell"),
            _over("Keras / ours", "keras_cell", "keras_cell_xla", ours="ours_cell"),
            _ms("ours, XLA", "ours_cell_xla"),
            _over("Keras, XLA / ours, XLA", "keras_cell_xla", ours="ours_cell_xla"),
        ),
        bench="loops",
        rows=("cell", "shape"),
        across="kind",
        plotted=False,
    ),
    Question(
        "Single steps",
        "How many times as fast as Keras' cells are ours, driven by hand?",
        "One `tf.function` that calls a cell T times, each with the next input and the states of"
        " the previous call, as a decoder does; the time of all T. float32, without XLA; training"
        " is forward and backward to the inputs and all weights. Cells as in \"Cells in loops\".",
        (
            _ms("ours", "ours_cell"),
            _over("Keras / ours", "keras_cell", ours="ours_cell"),
        ),
        bench="single_steps",
        rows=("cell", "shape"),
        across="kind",
        plotted=False,
    ),
    Question(
        "First calls",
        "How long does a first call take, with and without XLA?",
        "The first call of a new `tf.function` with one layer, float32: tracing, with XLA"
        " compiling, and the run; training is forward and backward. Ours is `tf_blockrnn.lstm` or"
        " `gru`, Keras' the layer. Import: of `tf_blockrnn`, after TensorFlow. Each in a fresh"
        " process; medians of several.",
        (
            _ms("import", "import"),
            _ms("ours", "ours"),
            _over("Keras / ours", "keras"),
            _ms("ours, XLA", "ours, XLA"),
            _over("Keras, XLA / ours, XLA", "keras, XLA", ours="ours, XLA"),
        ),
        bench="first_calls",
        plotted=False,
    ),
    Question(
        "Memory",
        "How much memory does training take?",
        "The rise of the peak resident set in forward and backward: `tf_blockrnn.lstm`, our"
        " `BlockLSTMV2`, and TensorFlow's with `BlockLSTMGradV2`, each in a fresh process.",
        (
            Column("ours", ("ours",), unit="MiB"),
            Column("our block op", ("ours_block",), unit="MiB"),
            _over("TensorFlow / ours", "tf_raw"),
            _over("TensorFlow / block op", "tf_raw", ours="ours_block"),
        ),
        plotted=False,
    ),
    Question(
        "Recompute",
        "How much memory and time does training take with `recompute`, relative to without?",
        "float32, a long sequence. The rise of the peak resident set in forward and backward, above"
        " x, weights and the gradient of the outputs, and the time of both.",
        (
            Column("without", ("recompute=False",)),
            *(
                Column(name.removeprefix("recompute="), (name,), "recompute=False",
                       ours_is_over=False)
                for name in _RECOMPUTE
            ),
        ),
        rows=("cell", "shape", "unit"),
        panels=(),
    ),
    Question(
        "Derivatives",
        "How many times as fast as Keras is a training step with a gradient penalty?",
        "A layer in a `tf.function`, float32; first call: with tracing.",
        (
            _ms("ours", "ours"),
            _over("Keras / ours", "keras"),
            _ms("ours, first call", "ours, first call"),
            _over("Keras / ours, first call", "keras, first call", ours="ours, first call"),
        ),
        panels=(),
    ),
    Question(
        "Layer normalisation",
        "How many times as fast as Keras' RNN over a cell is a layer with layer normalisation?",
        "A training step in a `tf.function`, float32; plain is our layer without normalisation.",
        (
            _ms("ours", "ours"),
            _over("Keras / ours", "keras"),
            Column("plain / ours", ("plain",), "ours", ours_is_over=False),
        ),
        bench="layer_norm",
        panels=(),
    ),
    Question(
        "GPU",
        "How many times as fast as cuDNN is the CUDA engine?",
        "Through PyTorch's modules; times of the device, by events. Step by step: ours without"
        " persistent kernels.",
        (
            _us("ours", "ours"),
            _us("cuDNN", "cudnn"),
            _over("cuDNN / ours", "cudnn"),
            _over("PyTorch's own kernels / ours", "pytorch"),
        ),
        rows=("cell", "kind", "dtype", "layers", "directions", "shape"),
        across="path",
        panels=(),
        dims="B, T, H",
    ),
)  # fmt: skip


BY_KEY = {question.key: question for question in QUESTIONS}


def of(result: str) -> list[Question]:
    """The questions that a result answers."""
    return [question for question in QUESTIONS if question.result == result]
