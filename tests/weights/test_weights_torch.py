"""Weights from and to PyTorch, against PyTorch's own forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import weight_stacks
from helpers.compare import assert_close, bits
from helpers.weight_formats import torch_module, torch_options
from helpers.weight_stacks import Stack

from tf_blockrnn import weights


def same_state(one, other) -> bool:
    as_bits = [{name: bits(array) for name, array in state.items()} for state in (one, other)]
    return list(one) == list(other) and as_bits[0] == as_bits[1]


def numpy_state(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("cell", weight_stacks.CELLS)
def test_cells(cell):
    """One step of a cell, and its names without numbers."""
    kind = {"lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}.get(cell, torch.nn.RNNCell)
    options = torch_options(cell)
    module = kind(3, 4, dtype=torch.float64, **options)
    read = weights.from_torch(module)
    x = weight_stacks.inputs(Stack(cell))[:1]
    with torch.no_grad():
        got = module(torch.from_numpy(x[0]))
    got = got[0] if cell == "lstm" else got
    want = weight_stacks.run(read, x).output[0]
    assert_close(got.numpy(), want, weight_stacks.bound(Stack(cell)), cell)
    other = kind(3, 4, dtype=torch.float64, **options)
    written = weights.to_torch(read, other)
    assert same_state(written, numpy_state(module)) and same_state(written, numpy_state(other))


def test_modules_without_values():
    module, filled = torch.nn.GRU(3, 4, device="meta"), torch.nn.GRU(3, 4)
    with pytest.raises(ValueError, match="weight_ih_l0 is on the device meta, .* assign=True"):
        weights.from_torch(module)
    module.load_state_dict(filled.state_dict(), assign=True)
    assert weights.from_torch(module) == weights.from_torch(filled)


def test_prefix():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.GRU(3, 4, 2)
            self.head = torch.nn.Linear(4, 2)

    state = Model().state_dict()
    read = weights.from_torch(state, prefix="encoder.")
    own = {name: v.numpy() for name, v in state.items() if name.startswith("encoder.")}
    assert same_state(weights.to_torch(read, prefix="encoder."), own)
    with pytest.raises(weights.UnsupportedError, match="head.bias; prefix selects the keys of one"):
        weights.from_torch({"weight_ih_l0": state["encoder.weight_ih_l0"], **state})
    with pytest.raises(ValueError, match="no recurrent weights under the prefix ''.*'encoder.'"):
        weights.from_torch({k: v for k, v in state.items() if "ih_l0" in k})
    with pytest.raises(ValueError, match="no recurrent weights under the prefix 'head.bias'"):
        weights.from_torch({}, prefix="head.bias")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_keep_their_bits(dtype):
    stack = Stack("lstm", layers=2, directions=2)
    module = torch_module(stack, getattr(torch, dtype))
    read = weights.from_torch(module)
    assert read.dtype.name == dtype
    other = torch_module(stack, getattr(torch, dtype))
    torch.nn.init.zeros_(other.weight_ih_l0)
    weights.to_torch(read, other)
    for name, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_arrays_are_the_caller_s():
    described = weight_stacks.random_weights(Stack("lstm", proj=2))
    for name, array in weights.to_torch(described).items():
        assert array.flags.writeable and array.flags.c_contiguous, name
        array[:] = 0
    assert described == weight_stacks.random_weights(Stack("lstm", proj=2))


def test_what_is_no_state_of_a_recurrent_layer():
    state = weights.to_torch(weight_stacks.random_weights(Stack("gru", layers=2, directions=2)))
    short = {**state, "weight_hh_l1": state["weight_hh_l1"][:-1]}
    shape = r"must have the shape \[G·H, n\]"
    for changed, arguments, named in (
        ({**state, "scale": np.ones(2)}, {}, "keys that are no recurrent weights: scale"),
        (
            {**state, "weight_ih_l1": np.ones([4, 8])},
            {},
            rf"weight_ih_l1 {shape} = \[12, n\], got \[4",
        ),
        (
            {**state, "weight_ih_l1": np.ones([9, 8])},
            {},
            rf"weight_ih_l1 {shape} = \[12, n\], got \[9",
        ),
        (
            {**state, "weight_ih_l1": np.ones([12])},
            {},
            rf"weight_ih_l1 {shape}, got \[12\]",
        ),
        (short, {}, rf"weight_hh_l1 {shape} = \[12, n\], got \[11, 4\]"),
        ({k: v for k, v in state.items() if "l0_r" not in k}, {}, "no weight_ih_l0_reverse"),
        ({k: v for k, v in state.items() if "hh_l1" not in k}, {}, "no weight_hh_l1"),
        ({k: v for k, v in state.items() if "l1" in k}, {}, "no weight_ih_l0"),
        ({k: v for k, v in state.items() if "bias_hh" not in k}, {}, "no bias_hh_l0"),
        ({k: v for k, v in state.items() if "bias_ih_l1" not in k}, {}, "no bias_ih_l1"),
        ({k: v for k, v in state.items() if not k.startswith("bias_ih_l1")}, {}, "no bias_ih_l1"),
        ({k: v for k, v in state.items() if "bias" not in k or "l1" in k}, {}, "no bias_ih_l0"),
        ({k: v for k, v in state.items() if k != "bias_hh_l1_reverse"}, {}, "no bias_hh_l1_rev"),
        ({**state, "weight_ih": state["weight_ih_l0"]}, {}, "has weight_ih, of a cell, beside wei"),
        ({**state, "weight_ih_l00": state["weight_ih_l0"]}, {}, "no recurrent weights: weight_ih_"),
        (
            state,
            {"cell": "lstm"},
            rf"weight_ih_l0 {shape} = \[16, n\], got \[12",
        ),
        (state, {"cell": "elman"}, "cell must be one of"),
    ):
        with pytest.raises(ValueError, match=named):
            weights.from_torch(changed, **arguments)
    plain = weights.to_torch(weight_stacks.random_weights(Stack("rnn_relu")))
    with pytest.raises(ValueError, match="cell must be given for weights of 1 gate"):
        weights.from_torch(plain)


def test_modules_of_another_kind():
    described = weight_stacks.random_weights(Stack("rnn_tanh"))
    with pytest.raises(ValueError, match="weights are of rnn_tanh, the module's cell is rnn_relu"):
        weights.to_torch(described, torch_module(Stack("rnn_relu")))
    with pytest.raises(RuntimeError, match="size mismatch"):
        weights.to_torch(described, torch_module(Stack("rnn_tanh", units=5)))
    with pytest.raises(ValueError, match="cell is 'gru', but the module's is 'lstm'"):
        weights.from_torch(torch_module(Stack("lstm")), cell="gru")
    for wrong in (torch.nn.Linear(2, 2), "a path"):
        with pytest.raises(TypeError, match="expected a state dict or one of torch.nn's"):
            weights.from_torch(wrong)


def test_loading_does_not_round():
    """What load_state_dict does without a word needs a dtype; a wider type holds all values."""
    described = weight_stacks.random_weights(Stack("lstm"))
    single = torch_module(Stack("lstm"), torch.float32)
    before = numpy_state(single)
    words = "weight_ih_l0 is of the type float32, .* all values of float64.*dtype='float32'"
    with pytest.raises(weights.UnsupportedError, match=words):
        weights.to_torch(described, single)
    assert same_state(numpy_state(single), before)
    state = weights.to_torch(described, single, dtype="float32")
    assert same_state(numpy_state(single), state)
    assert weights.from_torch(single) == described.astype(np.float32)
    narrow = described.astype(np.float32)
    wide = torch_module(Stack("lstm"))
    weights.to_torch(narrow, wide)
    assert weights.from_torch(wide) == narrow.astype(np.float64)


def test_loading_does_not_overflow():
    one = weights.DirectionWeights(np.full([1, 3, 4], 1e6, "f4"), np.ones([1, 4, 4], "f4"))
    described = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
    half = torch_module(Stack("rnn_tanh"), torch.float16)
    with pytest.raises(weights.UnsupportedError, match="which does not represent all values"):
        weights.to_torch(described, half)
    with pytest.raises(ValueError, match="w_x has values out of float16's range, such as 1e.06"):
        weights.to_torch(described, half, dtype="float16")


class Two(torch.nn.Module):
    def __init__(self, enc):
        super().__init__()
        self.enc, self.dec = enc, torch.nn.LSTM(4, 4)


def normed(norm):
    rnn = torch.nn.LSTM(4, 4, bias=False)
    for name in ("weight_ih_l0", "weight_hh_l0"):
        norm(rnn, name)
    return Two(rnn)


def quantized(one):
    return torch.ao.quantization.quantize_dynamic(Two(one(4, 4)), {"enc"}, dtype=torch.qint8)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "make, forms",
    [
        # Their files have more than arrays.
        (lambda: quantized(torch.nn.LSTM), ["module", "state"]),
        (lambda: quantized(torch.nn.LSTMCell), ["module", "state"]),
        (lambda: Two(torch.ao.nn.quantizable.LSTM(4, 4)), ["module", "state", "file"]),
        # Whose state dict is a plain one.
        (lambda: Two(torch.jit.script(torch.nn.LSTM(4, 4))), ["module"]),
        (lambda: normed(torch.nn.utils.weight_norm), ["module", "state", "file"]),
        (
            lambda: normed(torch.nn.utils.parametrizations.weight_norm),
            ["module", "state", "file"],
        ),
    ],
    ids=["quantized", "quantized cell", "quantizable", "script", "weight_norm", "parametrization"],
)
def test_layers_in_another_form_are_not_skipped(make, forms, tmp_path):
    module = make()
    sources = {"module": module, "state": module.state_dict(), "file": tmp_path / "two.pt"}
    if "file" in forms:
        torch.save(module.state_dict(), sources["file"])
    for form in forms:
        with pytest.raises(
            ValueError, match="several recurrent layers: .*dec.* Select with layer="
        ):
            weights.read(sources[form])
        assert weights.read(sources[form], layer="dec") == weights.from_torch(module.dec)
    with pytest.raises(weights.UnsupportedError, match="enc: its class is|in another form"):
        weights.read(module, layer="enc")


def test_other_weights_in_another_form_are_no_layer():
    module = Two(torch.nn.Linear(4, 4))
    module.enc.weight_q = torch.nn.Parameter(torch.ones(4, 4))
    torch.nn.utils.parametrizations.weight_norm(module.enc, "weight_q")
    assert weights.read(module.state_dict()) == weights.from_torch(module.dec)
    state = normed(torch.nn.utils.parametrizations.weight_norm).state_dict()
    with pytest.raises(ValueError, match="prefix may be 'dec.'"):
        weights.from_torch(state)


class Negated(torch.nn.LSTM):
    def forward(self, x, state=None):
        output, state = super().forward(x, state)
        return -output, state


class NegatedCell(torch.nn.GRUCell):
    def forward(self, x, state=None):
        return -super().forward(x, state)


class Renamed(torch.nn.LSTM):
    """Computes what an LSTM does."""

    def __init__(self, inputs):
        super().__init__(inputs, 4)

    def embed(self, x):
        return self(x)[1][0]


def test_subclasses_that_compute_something_else():
    described = weight_stacks.random_weights(Stack("lstm", dtype="float32"))
    for module, words in (
        (Negated(3, 4), "Negated overrides forward"),
        (NegatedCell(3, 4), "NegatedCell overrides forward"),
    ):
        with pytest.raises(weights.UnsupportedError, match=words):
            weights.from_torch(module)
    with pytest.raises(weights.UnsupportedError, match="Negated overrides forward"):
        weights.to_torch(described, Negated(3, 4))
    patched = torch.nn.LSTM(3, 4)
    patched.forward = lambda x: x
    with pytest.raises(weights.UnsupportedError, match="LSTM overrides forward"):
        weights.from_torch(patched)
    for register in ("register_forward_pre_hook", "register_forward_hook"):
        hooked = torch.nn.LSTM(3, 4)
        handle = getattr(hooked, register)(lambda *_: None)
        with pytest.raises(weights.UnsupportedError, match=r"LSTM: its forward hooks \(.*lambda>"):
            weights.from_torch(hooked)
        assert weights.from_torch(hooked.state_dict()).cell == "lstm"
        handle.remove()
        assert weights.from_torch(hooked).cell == "lstm"
    mine, plain = Renamed(3), torch.nn.LSTM(3, 4)
    plain.load_state_dict(mine.state_dict())
    assert weights.from_torch(mine) == weights.from_torch(plain)
    assert weights.from_torch(Negated(3, 4).state_dict()).cell == "lstm"


QUANTIZED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_of_any_form_are_read_bit_for_bit(protocol, zipped, tmp_path):
    """As parameters, views of one storage, with other strides, beside what is no tensor."""
    rnn = torch.nn.LSTM(3, 4, 2, bidirectional=True)
    state, given = rnn.state_dict(), weights.from_torch(rnn)
    shared = torch.cat([one.reshape(-1) for one in state.values()]).split(
        [one.numel() for one in state.values()]
    )
    forms = [
        dict(rnn.named_parameters()),
        {name: one.view(state[name].shape) for name, one in zip(state, shared, strict=True)},
        {name: one.T.contiguous().T for name, one in state.items()},
        {name: one.expand(1, *one.shape)[0] for name, one in state.items()},
    ]
    others = [torch.Size([2]), torch.float32, torch.device("cpu"), {1, 2}, 1j, b"b", 2**99, None]
    others += [{("a", torch.float32): 1, (("a",), 1): 2}, bytearray(b"b"), 2**4000]
    others += [torch.ones(3).to(getattr(torch, name)) for name in ("float8_e5m2", "complex32")]
    others += [torch.quantize_per_tensor(torch.ones(3), 0.1, 0, kind) for kind in QUANTIZED]
    path, save = tmp_path / "m.pt", {"_use_new_zipfile_serialization": zipped}
    for form in forms:
        torch.save({"others": others, "state": form}, path, pickle_protocol=protocol, **save)
        with pytest.warns(weights.AssumptionWarning):
            assert weights.read(path) == given


@pytest.mark.parametrize("zipped", [True, False])
def test_views_whose_elements_are_negated(zipped, tmp_path):
    """PyTorch stores their elements as they are, and the negation beside them."""
    state, path = torch.nn.LSTM(3, 4).state_dict(), tmp_path / "m.pt"
    view = torch.complex(state["weight_ih_l0"], -state["weight_ih_l0"]).conj().imag
    assert view.is_neg()
    torch.save({**state, "weight_ih_l0": view}, path, _use_new_zipfile_serialization=zipped)
    with pytest.warns(weights.AssumptionWarning):
        assert weights.read(path) == weights.from_torch(state)
