"""Public reports of crashes in TensorFlow's ops, as calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from helpers import cudnn_ops, op_table
from helpers.malformed import MODES, Base, Call, base_of_cudnn
from helpers.op_table import OPS, Shape
from helpers.reference.stack import Network

_NONE: Mapping = MappingProxyType({})


def _published(op: str, sizes: str, attrs: Mapping = _NONE, length=1, dtype="float", **changed):
    """A call with the shapes of these sizes of T, B, I and H, but for those that are given."""
    numbers = {"seq_len_max": (length,)} if "seq_len_max" in OPS[op].inputs else {}
    base = Base(OPS[op], op_table.sizes_of(*map(int, sizes.split())), attrs, numbers=numbers)
    shapes = {**OPS[op].shapes(base.sizes, attrs), **changed}
    return Call(base, tuple(changed) or ("seq_len_max",), shapes, numbers, attrs, dtype=dtype)


def _all(op: str, shape: Shape, longest: int | None = None, **others) -> dict[str, Shape]:
    """One shape for all arguments that have dims, of at most their rank with `longest`."""
    dims = {k: len(v.dims) for k, v in OPS[op].inputs.items() if v.dims}
    ranks = {k: len(shape) if longest is None else min(n, longest) for k, n in dims.items()}
    return {k: shape[:rank] for k, rank in ranks.items()} | others


_PLAIN, _PEEPHOLE = {"use_peephole": False}, {"use_peephole": True}
_OPTIONS = {"forget_bias": 112.66590343649887, "cell_clip": 67.12389445926587}
# Public reports of crashes in TensorFlow's ops, reduced to shapes; those of whole sequences also as
# one step.
REPRODUCERS = {
    "CVE-2021-41221": Call(
        base_of_cudnn(
            OPS["CudnnRNNV3"], cudnn_ops.Call(Network("lstm", 1, 1, 1, 1), lengths=(1, 1, 1))
        ),
        ("input", "input_h", "input_c", "params"),
        {"input": (2,), "input_h": (1,), "input_c": (3,), "params": (2,), "sequence_lengths": (3,)},
        {"sequence_lengths": (-1, 0, 1)},
        cudnn_ops.Call(Network("lstm", 1, 1, 1, 1)).attrs(),
    ),
    "CVE-2022-29200": _published("LSTMBlockCell", "1 28 29 17", _OPTIONS, wci=(), wco=(28, 17)),
    "CVE-2022-29200, all of shape [1]": _published(
        "LSTMBlockCell", "1 1 1 1", **_all("LSTMBlockCell", (1,))
    ),
    "CVE-2022-35964": _published(
        "BlockLSTMGradV2", "1 1 1 1", _PLAIN, **_all("BlockLSTMGradV2", (1, 1, 1))
    ),
    "CVE-2022-35964, one step": _published(
        "LSTMBlockCellGrad", "1 1 1 1", _PLAIN, **_all("LSTMBlockCellGrad", (1, 1, 1))
    ),
    "CVE-2023-25658": _published("GRUBlockCellGrad", "1 2 2 1", b_c=()),
    "tensorflow#58175": _published(
        "BlockLSTM",
        "1 3 15 0",
        {"forget_bias": -121.22699269620765, "cell_clip": -106.82307555235684},
        seq_len_max=(13, 11, 0),
    ),
    "tensorflow#58261": _published(
        "GRUBlockCell", "1 1 0 1",
        x=(1, 0, 1), h_prev=(1, 1, 1), w_ru=(1, 2, 1, 1, 1, 1), w_c=(1, 1, 1),
    ),
    # No units at all, which is legal here; the peepholes are not, once they are used.
    "tensorflow#58270": _published(
        "LSTMBlockCell", "1 2 16 0", _OPTIONS | _PEEPHOLE, dtype="half",
        wci=(5,), wcf=(16,), wco=(13,),
    ),
    "tensorflow#66763": _published(
        "LSTMBlockCellGrad", "1 1 1 1", _PLAIN, **_all("LSTMBlockCellGrad", (28, 29), x=(17,))
    ),
    "tensorflow#72362": _published("BlockLSTMV2", "2 1 2 2", _PEEPHOLE, 5, "half"),
    # Reported with no units at all, and steps of 2 among those of 10.
    "tensorflow#90915": _published(
        "BlockLSTMGrad", "10 2 16 0", _PLAIN, 10, "half", i=(2, 2, 0), h_grad=(2, 2, 0)
    ),
    "tensorflow#104847": _published(
        "BlockLSTMGrad", "1 1 1 1", _PLAIN, **_all("BlockLSTMGrad", (1, 1, 1), 2, x=(1, 1, 1))
    ),
    "tensorflow#104847, one step": _published(
        "LSTMBlockCellGrad", "1 1 1 1", _PLAIN, **_all("LSTMBlockCellGrad", (1, 1), 2)
    ),
    "tensorflow#106407": _published("BlockLSTMGradV2", "2 2 4 5", _PLAIN, 3),
    "tensorflow#112746": _published("BlockLSTMGrad", "3 2 4 5", _PEEPHOLE, 3, x=(3, 0, 4)),
    "tensorflow#112746, one step": _published("LSTMBlockCellGrad", "1 2 4 5", _PEEPHOLE, x=(0,)),
    "tensorflow#113069": _published(
        "LSTMBlockCell", "1 1 2 2", dtype="half", x=(2,), w=(4, 2), b=(4,)
    ),
    "tensorflow#124974": _published("BlockLSTMGrad", "2 2 16 0", _PLAIN, 10, "half"),
    # The report's other end: the time loop does not run, and what follows it cuts from there.
    "tensorflow#124974, negative": _published("BlockLSTMGrad", "2 2 16 4", _PLAIN, -1),
}  # fmt: skip


def made() -> Iterator[tuple[Call, str, str]]:
    for call, mode in itertools.product(REPRODUCERS.values(), MODES):
        for name in ("ours", "stock") if call.op.serves_tensorflow else ("ours",):
            yield call, mode, name
