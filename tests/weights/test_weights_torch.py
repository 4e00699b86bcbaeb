"""Weights from and to PyTorch, against PyTorch's own forward pass."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers import weight_stacks
from helpers.compare import assert_close, bits
from helpers.weight_stacks import Stack

KINDS = {
    "lstm": (torch.nn.LSTM, torch.nn.LSTMCell, {}),
    "gru": (torch.nn.GRU, torch.nn.GRUCell, {}),
    "rnn_tanh": (torch.nn.RNN, torch.nn.RNNCell, {"nonlinearity": "tanh"}),
    "rnn_relu": (torch.nn.RNN, torch.nn.RNNCell, {"nonlinearity": "relu"}),
}
NO_BIAS: tuple[str, ...] = ()
STACKS = [
    stack
    for cell in weight_stacks.CELLS
    for stack in (
        Stack(cell),
        Stack(cell, biases=NO_BIAS),
        Stack(cell, layers=3, directions=2),
        *([Stack(cell, layers=2, directions=2, proj=2)] if cell == "lstm" else []),
    )
]
stacks = pytest.mark.parametrize("stack", STACKS, ids=str)
cells = pytest.mark.parametrize("cell", weight_stacks.CELLS)


@pytest.fixture(scope="module")
def weights(tfb):
    del tfb
    from tf_blockrnn import weights

    return weights


def make_module(stack: Stack, dtype=torch.float64) -> torch.nn.Module:
    kind, _, options = KINDS[stack.cell]
    if stack.proj:
        options = {**options, "proj_size": stack.proj}
    torch.manual_seed(3)
    return kind(
        stack.inputs,
        stack.units,
        stack.layers,
        bidirectional=stack.directions == 2,
        bias=bool(stack.biases),
        dtype=dtype,
        **options,
    )


def run_module(module: torch.nn.Module, x: np.ndarray) -> list[np.ndarray]:
    """Output, h and, of an LSTM, c."""
    with torch.no_grad():
        output, last = module(torch.from_numpy(x))
    last = last if isinstance(last, tuple) else (last,)
    return [value.numpy() for value in (output, *last)]


def same_state(one, other) -> bool:
    as_bits = [{name: bits(array) for name, array in state.items()} for state in (one, other)]
    return list(one) == list(other) and as_bits[0] == as_bits[1]


def numpy_state(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


@stacks
def test_reads_what_pytorch_computes_with(weights, stack):
    module = make_module(stack)
    read = weights.from_torch(module)
    assert read.cell == stack.cell
    assert (read.num_layers, read.directions) == (stack.layers, stack.directions)
    want = run_module(module, weight_stacks.inputs(stack))
    got = weight_stacks.run(read, weight_stacks.inputs(stack))
    for name, one, other in zip(("output", "h", "c"), got, want, strict=False):
        assert_close(one, other, weight_stacks.bound(stack), name)


@stacks
def test_there_and_back_is_the_same(weights, stack):
    module = make_module(stack)
    state = numpy_state(module)
    assert same_state(weights.to_torch(weights.from_torch(module)), state)
    described = weight_stacks.random_weights(stack)
    written = weights.to_torch(described)
    cell = stack.cell if stack.cell.startswith("rnn") else None
    assert weights.from_torch(written, cell=cell) == described
    assert {name: array.shape for name, array in written.items()} == {
        name: array.shape for name, array in state.items()
    }


@stacks
def test_writes_what_pytorch_computes_with(weights, stack):
    described, module = weight_stacks.random_weights(stack), make_module(stack)
    weights.to_torch(described, module)
    want = weight_stacks.run(described, weight_stacks.inputs(stack))
    got = run_module(module, weight_stacks.inputs(stack))
    for name, one, other in zip(("output", "h", "c"), got, want, strict=False):
        assert_close(one, other, weight_stacks.bound(stack), name)


@cells
def test_cells(weights, cell):
    """One step of a cell, and its names without numbers."""
    _, kind, options = KINDS[cell]
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


def test_prefix(weights):
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
def test_types_keep_their_bits(weights, dtype):
    stack = Stack("lstm", layers=2, directions=2)
    module = make_module(stack, getattr(torch, dtype))
    read = weights.from_torch(module)
    assert read.dtype.name == dtype
    other = make_module(stack, getattr(torch, dtype))
    torch.nn.init.zeros_(other.weight_ih_l0)
    weights.to_torch(read, other)
    for name, tensor in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_a_missing_bias_becomes_zeros(weights):
    """As where Keras' one bias comes to PyTorch's two; PyTorch then computes with the one."""
    stack = Stack("lstm", biases=("b_x",))
    described = weight_stacks.random_weights(stack)
    state = weights.to_torch(described)
    assert not state["bias_hh_l0"].any() and state["bias_ih_l0"].any()
    none = weight_stacks.random_weights(Stack("gru", biases=NO_BIAS))
    assert "bias_ih_l0" not in weights.to_torch(none)
    module = make_module(Stack("gru"))
    weights.to_torch(none, module)
    assert not module.bias_ih_l0.detach().numpy().any()


def test_arrays_are_the_caller_s(weights):
    described = weight_stacks.random_weights(Stack("lstm", proj=2))
    for name, array in weights.to_torch(described).items():
        assert array.flags.writeable and array.flags.c_contiguous, name
        array[:] = 0
    assert described == weight_stacks.random_weights(Stack("lstm", proj=2))


def test_what_pytorch_cannot_hold(weights):
    below = weight_stacks.random_weights(Stack("gru"))
    other_size = weights.RecurrentWeights(
        "gru",
        [*below.layers, *weight_stacks.random_weights(Stack("gru", inputs=4, units=5)).layers],
        True,
    )
    both = weight_stacks.random_weights(Stack("gru", directions=2, inputs=4))
    mixed = weights.RecurrentWeights("gru", [*below.layers, *both.layers], True)
    for described, named in (
        (weight_stacks.random_weights(Stack("gru", reset_after=False)), "reset before it"),
        (weight_stacks.random_weights(Stack("lstm", peepholes=True)), "no peepholes, layer 0, for"),
        (weight_stacks.random_weights(Stack("lstm", cell_clip=2.0)), "no cell_clip, here it is 2"),
        (
            weight_stacks.random_weights(Stack("gru", zoneout_h=0.5)),
            "PyTorch has no zoneout_h, here it is 0.5",
        ),
        (
            weight_stacks.random_weights(Stack("lstm", proj=4)),
            "PyTorch has projections with P in 1..3 for H = 4, here P, H = 4, 4",
        ),
        (other_size, "one size for all layers: .*H, P = 4, 4, layer 1, forward has 5, 5"),
        (mixed, "all layers in one direction or all in both"),
        (
            _half_projected(weights),
            "has a projection in all layers or in none, layer 0 and layer 1",
        ),
    ):
        with pytest.raises(weights.UnsupportedError, match=named):
            weights.to_torch(described)


def _half_projected(weights):
    """The identity as a projection, in the lower layer only."""
    below = weight_stacks.random_weights(Stack("lstm", proj=4))
    above = weight_stacks.random_weights(Stack("lstm", inputs=4))
    return weights.RecurrentWeights("lstm", [*below.layers, *above.layers])


def test_what_is_no_state_of_a_recurrent_layer(weights):
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


def test_modules_of_another_kind(weights):
    described = weight_stacks.random_weights(Stack("rnn_tanh"))
    with pytest.raises(ValueError, match="weights are of rnn_tanh, the module's cell is rnn_relu"):
        weights.to_torch(described, make_module(Stack("rnn_relu")))
    with pytest.raises(RuntimeError, match="size mismatch"):
        weights.to_torch(described, make_module(Stack("rnn_tanh", units=5)))
    with pytest.raises(ValueError, match="cell is 'gru', but the module's is 'lstm'"):
        weights.from_torch(make_module(Stack("lstm")), cell="gru")
    for wrong in (torch.nn.Linear(2, 2), "a path"):
        with pytest.raises(TypeError, match="expected a state dict or one of torch.nn's"):
            weights.from_torch(wrong)


def test_loading_does_not_round(weights):
    """What load_state_dict does without a word needs a dtype; a wider type holds all values."""
    described = weight_stacks.random_weights(Stack("lstm"))
    single = make_module(Stack("lstm"), torch.float32)
    before = numpy_state(single)
    words = "weight_ih_l0 is of the type float32, .* all values of float64.*dtype='float32'"
    with pytest.raises(weights.UnsupportedError, match=words):
        weights.to_torch(described, single)
    assert same_state(numpy_state(single), before)
    state = weights.to_torch(described, single, dtype="float32")
    assert same_state(numpy_state(single), state)
    assert weights.from_torch(single) == described.astype(np.float32)
    narrow = described.astype(np.float32)
    wide = make_module(Stack("lstm"))
    weights.to_torch(narrow, wide)
    assert weights.from_torch(wide) == narrow.astype(np.float64)


def test_loading_does_not_overflow(weights):
    one = weights.DirectionWeights(np.full([1, 3, 4], 1e6, "f4"), np.ones([1, 4, 4], "f4"))
    described = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
    half = make_module(Stack("rnn_tanh"), torch.float16)
    with pytest.raises(weights.UnsupportedError, match="which does not represent all values"):
        weights.to_torch(described, half)
    with pytest.raises(ValueError, match="w_x has values out of float16's range, such as 1e.06"):
        weights.to_torch(described, half, dtype="float16")


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
        self.note = "a constructor of its own"

    def reset_parameters(self):
        for parameter in self.parameters():
            torch.nn.init.uniform_(parameter)

    def extra_repr(self):
        return self.note

    def embed(self, x):
        return self(x)[1][0]


def test_subclasses_that_compute_something_else(weights):
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
    mine, plain = Renamed(3), torch.nn.LSTM(3, 4)
    plain.load_state_dict(mine.state_dict())
    assert weights.from_torch(mine) == weights.from_torch(plain)
    assert weights.from_torch(Negated(3, 4).state_dict()).cell == "lstm"
