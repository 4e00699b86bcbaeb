"""Files as people have them, written by the frameworks' own writers: read by name, or refused.

tests/weights/files has them and the programs that wrote them.
"""

from __future__ import annotations

import pathlib
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from tf_blockrnn import weights
from tf_blockrnn.inference import Session

FILES = pathlib.Path(__file__).parent / "files"


class Case(NamedTuple):
    """A file, the options of Session, and what is said.

    Args:
      warns: words of each warning, in their order.
      error: words of the refusal; None where the file is read.
      bound: of the largest difference from the framework's outputs.
    """

    file: str
    options: dict[str, Any] = {}
    warns: tuple[str, ...] = ()
    error: str | None = None
    bound: float = 1e-6


STATE_DICT = "assumed: modules of PyTorch's own classes"
PYTORCH = [
    Case("torch_state_dict.pt", warns=(STATE_DICT,)),
    Case("torch_nested.ckpt", warns=(STATE_DICT,)),
    Case("torch_two_states.pt", error="several recurrent layers: now, ema. Select with layer="),
    Case("torch_two_states.pt", {"layer": "ema"}, (STATE_DICT,)),
    Case("torch_0.pth", error='has one gate: specify its cell with cell="rnn_tanh"'),
    Case("torch_0.pth", {"cell": "rnn_relu"}, (STATE_DICT,)),
    Case("torch_lstm.safetensors", warns=(STATE_DICT,)),
    Case("torch_bfloat16.safetensors", warns=(STATE_DICT,)),
    Case("torch_script.pt", warns=(STATE_DICT,)),
    Case("torch_export.pt2", warns=(STATE_DICT,)),
    Case("torch_pickled_module.pt", error="is not a state dict, torch.save"),
    Case("torch_weight_norm.pt", error="weights in another form than arrays, 'parametrizations"),
    Case("torch_transformer.pt", error="its keys are 'self_attn.in_proj_weight'"),
]
ONLY_WEIGHTS = ("the file has only weights", "assumed: layers of Keras' own classes")
SIGMOID = "assumed: recurrent_activation sigmoid"
HARD_SIGMOID = {"recurrent_activation": "hard_sigmoid"}
KERAS = [
    Case("keras_3.15.1_nested.keras"),
    Case("keras_3.15.1_gru.h5"),
    Case("keras_3.15.1_hard_sigmoid.keras"),
    Case("keras_3.15.1_lstm.weights.h5", warns=(*ONLY_WEIGHTS, SIGMOID)),
    Case("keras_3.15.1_cells.keras"),
    Case("keras_3.0.5_simple.keras"),
    Case("tf_keras_2.21.0_lstm.h5"),
    Case("tf_keras_2.21.0_cells.keras"),
    Case("tf_keras_2.21.0_nested.h5"),
    Case("tf_keras_2.21.0_gru.keras"),
    Case("tf_keras_2.21.0_simple.h5"),
    Case("tf_keras_2.21.0_cudnn.keras"),
    Case("tf_keras_2.21.0_hard_sigmoid.keras"),
    Case("tf_keras_2.21.0_sum.keras", error="merge_mode='concat', got 'sum' of both"),
    Case("tf_keras_2.21.0_time_major.h5", error="lstm: layers with time_major=True are not supp"),
    Case("tf_keras_2.21.0_lstm.weights.h5", warns=(*ONLY_WEIGHTS, SIGMOID)),
    Case("tf_keras_2.21.0_lstm.weights.h5", HARD_SIGMOID, error="whose hard_sigmoid differ"),
    Case("tf_keras_2.21.0_weights.h5", warns=(*ONLY_WEIGHTS, SIGMOID)),
    Case("keras_2.2.4_lstm.h5"),
    Case("keras_2.1.6_gru.h5"),
    Case("keras_2.1.6_cells.h5"),
    Case("keras_2.0.9_weights.h5", error="of Keras 2.0.9, and before 2.3 the default"),
    Case("keras_2.0.9_weights.h5", HARD_SIGMOID, ONLY_WEIGHTS),
]

# Of outputs that ONNX Runtime computes from inputs and states that it quantised.
QUANTIZED = 4e-3
DEQUANTIZED = "/rnn/LSTM_quant: assumed: its DynamicQuantizeLSTM is computed with float32 inputs"
SEVERAL = "the model has several recurrent nodes: "
ONNX = [
    Case("onnx_torch_9_h0.onnx"),
    Case("onnx_torch_14_two_layers.onnx"),
    Case("onnx_torch_14_two_layers.onnx", {"layer": "/rnn/LSTM,/rnn/LSTM_1"}),
    Case("onnx_torch_dynamo_18_h0.onnx"),
    Case("onnx_torch_dynamo_20.onnx"),
    Case("onnx_torch_if.onnx", error=f"{SEVERAL}/GRU, /GRU_1. Select with layer="),
    Case("onnx_torch_if.onnx", {"layer": "/GRU"}),
    Case("onnx_torch_computed.onnx", error="is no constant: it depends on 'scale', an input of"),
    Case("onnx_torch_cell.onnx", error="no recurrent node (LSTM, GRU, RNN or DynamicQuantizeLSTM"),
    Case("onnx_float16.onnx"),
    Case("onnx_keras_gru.onnx", error="its ops are Loop, "),
    Case("onnx_keras_bidirectional.onnx"),
    Case("onnx_keras_2_hard_sigmoid.onnx"),
    Case("onnx_dynamic_quantize.onnx", warns=(DEQUANTIZED,), bound=QUANTIZED),
    Case("onnx_dynamic_quantize_channels.onnx", warns=(DEQUANTIZED,), bound=QUANTIZED),
    Case("onnx_qdq.onnx", bound=QUANTIZED),
    Case("onnx_function.onnx"),
    Case("onnx_ours_h0.onnx", {"layer": "lstm_0,lstm_1"}),
]
CASES = [*PYTORCH, *KERAS, *ONNX]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.jit's of itself
def test_files(case):
    path = FILES / case.file
    if case.error is not None:
        with pytest.raises(ValueError) as raised:
            Session(path, **case.options)
        assert case.error in str(raised.value)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", weights.AssumptionWarning)
        session = Session(path, **case.options)
    said = [str(one.message) for one in caught if one.category is weights.AssumptionWarning]
    assert len(said) == len(case.warns), said
    for text, words in zip(said, case.warns, strict=True):
        assert words in text
    assert {one.filename for one in caught if str(one.message) in said} <= {__file__}
    held = np.load(f"{path}.npz")
    np.testing.assert_allclose(session.run(held["x"])[0], held["y"], rtol=0, atol=case.bound)


def test_every_file_has_a_case():
    there = {path.name for path in FILES.iterdir() if path.suffix not in (".py", ".npz", ".md")}
    assert there - {"__pycache__"} == {case.file for case in CASES}


def test_modules_of_pytorch():
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder = torch.nn.GRU(3, 4), torch.nn.LSTMCell(4, 2)
            self.h_0 = torch.nn.Parameter(torch.ones(1, 1, 4))

    net = Net()
    with pytest.warns(weights.AssumptionWarning, match="'h_0' may be a learned initial state"):
        assert weights.read(net, layer="encoder") == weights.from_torch(net.encoder)
    with pytest.raises(ValueError, match="several recurrent layers: encoder, decoder. Select with"):
        Session(net)
    with pytest.raises(weights.UnsupportedError, match="no torch.nn.LSTM, GRU or RNN, but Linear"):
        Session(torch.nn.Linear(2, 3))


LSTM = {"weight_ih_l0": np.ones([12, 2]), "weight_hh_l0": np.ones([12, 3])}


def nested(depth: int, of: Any) -> dict[str, Any]:
    for _ in range(depth):
        of = {"in": of}
    return of


@pytest.mark.parametrize(
    "found", [{"models": [LSTM]}, {"step": (1, [{"net": LSTM}])}, nested(5000, LSTM)]
)
@pytest.mark.filterwarnings("ignore::tf_blockrnn.weights.AssumptionWarning")
def test_state_dicts_at_any_depth(found):
    assert weights.read(found) == weights.from_torch(LSTM)


def test_layers_in_lists_have_numbers():
    with pytest.raises(ValueError, match="several recurrent layers: models/0, models/1"):
        weights.read({"models": [LSTM, dict(LSTM)]})


def test_mappings_with_more_paths_than_can_be_followed(tmp_path):
    import torch

    found: dict[str, Any] = {}
    found |= {f"k{i}": found for i in range(12)} | {"list": [found]}
    torch.save(found, tmp_path / "paths.pt")
    with pytest.raises(ValueError, match="no recurrent layer with PyTorch's names"):
        Session(tmp_path / "paths.pt")
    with pytest.raises(ValueError, match="more than 100000 nested mappings: pass the state dict"):
        weights.read({"all": [{} for _ in range(100_000)]})


@pytest.mark.parametrize(
    ("name", "content", "given", "kind"),
    [
        ("saved/saved_model.pb", b"\x08\x01", "saved", "a SavedModel"),
        ("saved/saved_model.pb", b"\x08\x01", "saved/saved_model.pb", "a SavedModel"),
        ("m.tflite", b"\x1c\0\0\0TFL3\x14\0", "m.tflite", "a TensorFlow Lite model"),
        ("m.bin", b"\x1c\0\0\0TFL3\x14\0", "m.bin", "a TensorFlow Lite model"),
        ("frozen.pb", b"\x0a\x02\x0a\0", "frozen.pb", "a TensorFlow graph"),
    ],
)
def test_models_of_operations(name, content, given, kind, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    said = f"{given}: it is {kind}, which has operations and no layers: pass the model that it was"
    with pytest.raises(ValueError, match=said):
        Session(tmp_path / given)


def test_options_that_do_not_apply():
    with pytest.raises(ValueError, match="source: reset= does not apply to a mapping"):
        Session(LSTM, reset="after")
    with pytest.raises(ValueError, match="reset= must be before or after, got 'later'"):
        weights.read(LSTM, reset="later")
    for function, words in ((weights.read, "read"), (Session, "Session")):
        with pytest.raises(TypeError, match=f"^{words} got an unexpected argument, 'thread'; what"):
            function(LSTM, thread=2)
    for layer in (0, 5, [1]):
        with pytest.raises(TypeError, match="layer must be a name or a list of names, got"):
            Session(LSTM, layer=layer)
