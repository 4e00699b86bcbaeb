"""Masks and sequence lengths on ONNX's recurrent nodes.

ONNX has the lengths, `sequence_lens`: outputs past them are zeros, and a reversed node starts at
the last step within them, as in our ops. It has no mask. Here the unmasked steps of each row are
moved to the front, in order; the node runs over them with their number as the length; then its
outputs are moved back to the positions of the steps. A masked step repeats the output of the
previous step. This works for any mask.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_blockrnn._onnx_export.emitter import Emitter


@dataclasses.dataclass(frozen=True)
class Steps:
    """The steps that a node does: all of them without lengths.

    All tensors are time-major.
    """

    lens: str = ""  # int32 [B], "" for all steps
    order: str = ""  # int64 [T, B]: the steps, the unmasked first; "" without a mask
    source: str = ""  # int64 [T, B]: the position in `order` whose output a step has
    before_first: str = ""  # bool [T, B]: whether no step was done before, so that h is h_prev
    within: str = ""  # bool [T, B]: whether a step is within the row's length; "" without lengths

    def gathered(self, emit: Emitter, x: str) -> str:
        """x, [T, B, I], with the unmasked steps first."""
        return _gather(emit, x, self.order) if self.order else x

    def scattered(self, emit: Emitter, y: str, h_prev: str) -> str:
        """The outputs, [T, B, H], from those of the gathered steps."""
        if not self.order:
            return y
        y = _gather(emit, y, self.source)
        y = emit.op("Where", emit.unsqueeze(self.before_first, 2), emit.unsqueeze(h_prev, 0), y)
        if not self.within:
            return y
        zero = emit.const(0, emit.numpy_dtype(y))
        return emit.op("Where", emit.unsqueeze(self.within, 2), y, zero)

    def last(self, emit: Emitter, last: str, before: str) -> str:
        """The last state, [B, H]: ONNX Runtime returns zeros for a row without any step."""
        if not self.lens:
            return last
        none = emit.op("Equal", self.lens, emit.const(0, np.int32))
        return emit.op("Where", emit.unsqueeze(none, 1), before, last)


def read(emit: Emitter, mask: str, lengths: str, time_major: bool, go_backwards: bool) -> Steps:
    """The steps that the inputs `mask` and `sequence_lengths` of a sequence op ask for."""
    has_lengths = emit.is_given(lengths)
    if not emit.is_given(mask):
        return Steps(lens=emit.cast(lengths, np.int32)) if has_lengths else Steps()
    if not time_major:
        mask = emit.transpose(mask, 1, 0)
    done = emit.cast(mask, np.int64)
    steps = emit.dim(done, 0)
    zero, one = emit.const(0, np.int64), emit.const(1, np.int64)
    step = emit.op("Range", zero, emit.squeeze(steps, 0), one)
    step = emit.unsqueeze(step, 1)
    within = ""
    if has_lengths:
        within = emit.op("Less", step, emit.unsqueeze(emit.cast(lengths, np.int64), 0))
        done = emit.op("Mul", done, emit.cast(within, np.int64))
    # Each step's rank among those of its row: a masked one comes T later.
    rank = emit.op("Add", step, emit.op("Mul", emit.op("Sub", one, done), steps))
    _, order = emit.ops("TopK", [rank, steps], 2, axis=0, largest=0, sorted=1)
    count = emit.reduce_sum(done, 0)
    source = emit.op("Sub", emit.op("CumSum", done, zero), done if go_backwards else one)
    if go_backwards:
        before_first = emit.op("Not", emit.op("Less", source, emit.unsqueeze(count, 0)))
    else:
        before_first = emit.op("Less", source, zero)
    in_range = emit.op("Where", before_first, zero, source)
    return Steps(emit.cast(count, np.int32), order, in_range, before_first, within)


def _gather(emit: Emitter, values: str, positions: str) -> str:
    """values[positions[t, b], b] for values [T, B, N]."""
    positions = emit.op("Expand", emit.unsqueeze(positions, 2), emit.op("Shape", values))
    return emit.op("GatherElements", values, positions, axis=0)
