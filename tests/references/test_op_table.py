"""What the tests derive from the op table: its notation, and which calls are legal."""

from __future__ import annotations

import dataclasses

from helpers import legal_calls, malformed, op_table
from helpers.op_table import OPS


def test_dims_are_sums_of_products():
    sizes = {"T": 5, "B": 2, "I": 3, "H": 4, "K": 0}
    dims = ("T", "4H", "I+H", "K*T", "3")
    assert op_table.shape(dims, sizes) == (5, 16, 7, 0, 3)
    found = {"H": 4}
    assert op_table.bind("I+H", 7, found) and found == {"H": 4, "I": 3}
    assert not op_table.bind("I+H", 8, found)
    assert not op_table.bind("4H", 18, {})
    assert not op_table.bind("I+H", 3, {"H": 4})


def test_arguments_are_read_with_all_their_marks():
    gradient = OPS["LSTMSequenceGrad"]
    x, b, w_p, lengths = (gradient.inputs[k] for k in ("x", "b", "w_p", "sequence_lengths"))
    assert x.alternatives == (("T", "B", "I"), ("B", "T", "I"))
    assert gradient.dims(x) == ("T", "B", "I")
    assert gradient.dims(x, {"time_major": False}) == ("B", "T", "I")
    assert gradient.dims(gradient.outputs["x_grad"], {"time_major": False}) == ("B", "T", "I")
    assert (b.left_out_if, w_p.left_out_if) == (("K", "1"), ("P", "H"))
    assert lengths.on_host and lengths.optional and lengths.type == "Tlen"
    assert {"b", "mask", "h_grad"} <= gradient.optional() and "w_x" not in gradient.optional()
    weights = OPS["CudnnRNNCanonicalToParams"].inputs["weights"]
    assert weights.is_list and weights.dims is None
    assert OPS["CudnnRNNV3"].inputs["input_c"].cell_state
    assert len(OPS) == 33


def _is_legal(op, base=0, attrs=None, numbers=None, **shapes):
    call = next(malformed.calls(malformed.bases(OPS[op])[base]))
    changed = dataclasses.replace(
        call,
        shapes={**call.shapes, **shapes},
        attrs={**call.attrs, **(attrs or {})},
        numbers={**call.numbers, **(numbers or {})},
    )
    return legal_calls.meaning(changed) is not None


def test_which_calls_are_legal():
    """By hand, from the op contracts; of T, B, I and H = 3, 2, 5 and 4."""
    cell = "LSTMBlockCell"
    for op in OPS:
        assert all(
            legal_calls.meaning(next(malformed.calls(base))) for base in malformed.bases(OPS[op])
        ), op
    used, unused = {"use_peephole": True}, {"use_peephole": False}
    assert not _is_legal(cell, attrs=used, wci=(5,))
    assert _is_legal(cell, attrs=unused, wci=(5,)) and not _is_legal(cell, attrs=unused, wci=())
    assert not _is_legal(cell, b=(15,)) and not _is_legal(cell, x=(2, 5, 1))
    for length, legal in ((-1, False), (0, True), (3, True), (4, False), (2**32, False)):
        assert _is_legal("BlockGRU", numbers={"seq_len_max": (length,)}) == legal
    sequence = "GRUSequence"
    assert _is_legal(sequence, mask=(0,)) and not _is_legal(sequence, mask=(2, 3))
    assert not _is_legal(sequence, w_ru_x=(0,), w_c_x=(0,))  # I is not 3H
    assert _is_legal(sequence, -1, w_ru_x=(0,), w_c_x=(0,)) and not _is_legal(
        sequence, 2, w_c_x=(0,)
    )
    assert not _is_legal("CudnnRNNV3", attrs={"dropout": 1.0})
    assert not _is_legal("CudnnRNNV3", attrs={"rnn_mode": "gru"})
    assert not _is_legal("CudnnRNNParamsSize", numbers={"num_layers": (0,)})
