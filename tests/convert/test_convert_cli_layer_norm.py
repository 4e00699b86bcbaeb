"""`python -m tf_blockrnn convert`, on layers with layer normalisation."""

from __future__ import annotations

import keras
import pytest
import torch
from helpers import norm_cells
from helpers.convert_command import converted, make, refused
from helpers.weight_stacks import Stack

from tf_blockrnn import layers, weights
from tf_blockrnn.weights import npz

_TWO = {"layers": 2, "directions": 2, "dtype": "float32"}
LSTM = Stack("layer_norm_lstm", biases=("b_x",), norm_output_only=True, **_TWO)
GRU = Stack("layer_norm_gru", **_TWO)


@pytest.mark.parametrize("stack", [LSTM, GRU], ids=["lstm", "gru"])
def test_files_of_our_own(convert, stack):
    described = make(stack)
    shown = converted(convert, "in.npz out.npz --to npz")
    assert npz.from_npz("out.npz") == described
    assert f"{stack.cell}, 2 layers, both directions, I = 3, H = 4, epsilon 0.125" in shown
    assert ("norm of the output only" in shown) == (stack is LSTM)
    assert "layers.1.backward.norm_x" in shown
    refused(convert, "in.npz out.pt --to torch", 1, f"PyTorch cannot represent {stack.cell}")
    shown = converted(convert, "in.npz out.keras --to keras --package tf_blockrnn")
    assert "/recurrent_norm/gamma, " in shown
    names = [layer.name for layer in keras.models.load_model("out.keras").layers]
    converted(convert, f"out.keras again.npz --to npz --layer {','.join(names)}")
    assert npz.from_npz("again.npz") == described


def test_hdf5_weights_whose_norms_have_no_names_are_refused(convert):
    """A file of weights alone has no classes, and its norms are not to be left out."""
    model = keras.Sequential([keras.Input((None, 3)), layers.LayerNormLSTM(4)])
    model.save_weights("in.weights.h5")
    refused(convert, "in.weights.h5 out.npz --to npz", 1, "and also has kernel_norm/vars/0")


@pytest.mark.parametrize("cell", ["layer_norm_lstm", "layer_norm_gru"])
def test_state_dicts_of_haste(convert, cell):
    arrays = norm_cells.haste_arrays(cell, dtype="float32")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    own = torch.nn.LSTM(3, 4).state_dict()
    torch.save(tensors, "alone.pt")
    torch.save(tensors | {"head.weight": torch.ones(3)}, "model.pt")
    named = {f"rnn.{name}": tensor for name, tensor in tensors.items()}
    torch.save(named | {f"other.{name}": tensor for name, tensor in own.items()}, "both.pt")
    want = weights.from_haste(arrays)
    for line in ("alone.pt", "model.pt", f"alone.pt --cell {cell}", "both.pt --layer rnn"):
        shown = converted(convert, f"{line} out.npz --to npz")
        assert npz.from_npz("out.npz") == want, line
        assert "is of haste_pytorch, by its names" in shown
    assert "PyTorch's own classes" in converted(convert, "both.pt o.npz --to npz --layer other")
    refused(convert, "both.pt no.npz --to npz", 2, "several recurrent layers: rnn, other")
    refused(convert, "alone.pt no.npz --to npz --cell lstm", 2, f"--cell is lstm.*haste's {cell}")
    torch.save(named | {"rnn.bias": torch.ones(5)}, "bad.pt")
    refused(convert, "bad.pt no.npz --to npz", 1, "from_haste: bias")
