"""Weights from and to TensorFlow 1's checkpoints, against TensorFlow 1's own forward pass."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from helpers import tf1_graphs, tolerances, weight_stacks
from helpers.compare import assert_close, bits
from helpers.tf1_graphs import NETWORKS
from helpers.weight_stacks import Stack

from tf_blockrnn import weights
from tf_blockrnn.weights.tf1 import list_tf1


class Reader:
    """A checkpoint in memory, with the methods of TensorFlow's reader."""

    def __init__(self, variables: dict[str, np.ndarray]):
        self.variables = variables

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        return {name: list(np.shape(value)) for name, value in self.variables.items()}

    def get_tensor(self, name: str) -> np.ndarray:
        return self.variables[name]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-90, 91, shape).astype("f4") / 128


def lstm_variables(scope: str, inputs: int = 3, units: int = 4) -> dict[str, np.ndarray]:
    return {
        f"{scope}/kernel": numbers(inputs + units, 4 * units),
        f"{scope}/bias": numbers(4 * units, seed=1),
    }


def assert_same_variables(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert sorted(got) == sorted(want)
    for name in got:
        assert bits(got[name]) == bits(want[name]), name


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name, tmp_path):
    """Read, it computes the same; written, it is the same checkpoint, for TensorFlow too."""
    network, path = NETWORKS[name], str(tmp_path / "model")
    outputs, variables = tf1_graphs.run(network, path)
    bias = {} if network.forget_bias is None else {"forget_bias": network.forget_bias}
    described = weights.from_tf1(path, cell=network.cell, cell_clip=network.cell_clip, **bias)

    stack = Stack("lstm", described.num_layers, described.directions, tf1_graphs.INPUTS)
    x = weight_stacks.inputs(stack)
    if network.dtype == "float32":
        x = x.astype("f4")
    bound = tolerances.stack_bound(network.dtype, stack.reduction_length, stack.layers)
    assert_close(outputs, weight_stacks.run(described, x).output, bound, "outputs")

    swapped = {"swapped_names": True} if "swapped" in name else {}
    written = weights.to_tf1(described, cell=network.cell, **bias, **swapped)
    assert_same_variables(written, variables)

    tf1_graphs.save(str(tmp_path / "written"), written)
    again, _ = tf1_graphs.run(network, str(tmp_path / "again"), restore=str(tmp_path / "written"))
    assert bits(again) == bits(outputs)


@pytest.mark.parametrize("cell, kind", [("CudnnRNNTanh", "rnn_tanh"), ("CudnnRNNRelu", "rnn_relu")])
def test_cudnn_rnn(cell, kind):
    described = weight_stacks.random_weights(
        Stack(kind, layers=2, directions=2, biases=("b_x",), dtype="float32")
    )
    variables = weights.to_tf1(described, cell=cell, scope="encoder")
    where = "encoder/stack_bidirectional_rnn/cell_1/bidirectional_rnn/bw/basic_rnn_cell"
    top = described.layers[1].backward
    assert bits(variables[f"{where}/kernel"]) == bits(np.concatenate([top.w_x[0], top.w_h[0]]))
    assert bits(variables[f"{where}/bias"]) == bits(top.b_x[0])
    assert weights.from_tf1(Reader(variables), cell=cell) == described


def test_a_stack_for_each_direction_is_refused(tmp_path):
    path = str(tmp_path / "model")
    network = tf1_graphs.Network("GRUCell", tf1_graphs.stack_per_direction)
    outputs, _ = tf1_graphs.run(network, path)
    with pytest.raises(weights.UnsupportedError, match="each direction is a stack of its own"):
        weights.from_tf1(path, cell="GRUCell")
    stack = Stack("gru", 2, inputs=tf1_graphs.INPUTS)
    x = weight_stacks.inputs(stack)
    for scope, half, order in (("fw", outputs[..., :4], 1), ("bw", outputs[..., 4:], -1)):
        described = weights.from_tf1(path, cell="GRUCell", scope=f"bidirectional_rnn/{scope}")
        want = weight_stacks.run(described, x[::order]).output[::order]
        bound = tolerances.stack_bound("double", stack.reduction_length, 2)
        assert_close(half, want, bound, scope)


def test_what_else_a_checkpoint_holds_is_left_alone():
    variables = {
        **lstm_variables("model/rnn/basic_lstm_cell"),
        "model/rnn/basic_lstm_cell/kernel/Adam": numbers(7, 16),
        "model/rnn/basic_lstm_cell/bias/Adam": numbers(16),
        "model/dense/kernel": numbers(20, 16),  # has the form of an LSTM's
        "model/dense/bias": numbers(16),
        "model/embedding": numbers(5, 3),
        "global_step": np.int64(3),
    }
    want = weights.from_tf1(Reader(lstm_variables("rnn/lstm")), cell="LSTMCell", scope="rnn/lstm")
    for scope in ("", "model", "model/rnn/", "model/rnn/basic_lstm_cell"):
        assert weights.from_tf1(Reader(variables), cell="BasicLSTMCell", scope=scope) == want
    found = list_tf1(Reader(variables))
    assert found == (("model/rnn/basic_lstm_cell", ("BasicLSTMCell",), 3, 4),)


def test_gates_and_candidate_of_a_gru_are_no_cells():
    described = weight_stacks.random_weights(Stack("gru", 2, reset_after=False, biases=("b_x",)))
    variables = weights.to_tf1(described, cell="GRUCell")
    scopes = [f"rnn/multi_rnn_cell/cell_{n}/gru_cell" for n in range(2)]
    assert [cell.scope for cell in list_tf1(Reader(variables))] == scopes
    for cell in ("BasicLSTMCell", "BasicRNNCell"):
        with pytest.raises(ValueError, match=f"no {cell} in this checkpoint; it holds rnn/multi"):
            weights.from_tf1(Reader(variables), cell=cell)


def test_list_tells_which_cells_fit():
    peepholes = {f"b/lstm_cell/w_{gate}_diag": numbers(4) for gate in "ifo"}
    variables = {
        **lstm_variables("a/cell_0/mine"),
        **lstm_variables("b/lstm_cell"),
        **peepholes,
        "c/lstm_cell_1/kernel": numbers(5, 16),
        "c/lstm_cell_1/bias": numbers(16),
        "c/lstm_cell_1/projection/kernel": numbers(4, 2),
    }
    # A cell with a custom name may be any.
    assert list_tf1(Reader(variables)) == (
        ("b/lstm_cell", ("LSTMCell", "LSTMBlockCell"), 3, 4),
        ("c/lstm_cell_1", ("LSTMCell",), 3, 4),
    )


def test_scope_chooses_among_networks():
    variables = {
        **lstm_variables("encoder/rnn/lstm_cell"),
        **lstm_variables("decoder/lstm_cell", 5),
    }
    with pytest.raises(ValueError, match="choose one of decoder/lstm_cell, encoder/rnn/lstm_cell"):
        weights.from_tf1(Reader(variables), cell="LSTMCell")
    assert weights.from_tf1(Reader(variables), cell="LSTMCell", scope="decoder").input_size == 5


def test_a_cell_of_its_own_name_needs_its_scope():
    variables = lstm_variables("rnn/mine")
    with pytest.raises(ValueError, match="it holds rnn/mine/bias, rnn/mine/kernel. A cell with"):
        weights.from_tf1(Reader(variables), cell="LSTMCell")
    found = weights.from_tf1(Reader(variables), cell="LSTMCell", scope="rnn/mine")
    assert found.layers[0].forward.units == 4
    root = {name.removeprefix("rnn/mine/"): value for name, value in variables.items()}
    assert weights.from_tf1(Reader(root), cell="LSTMCell") == found


COUPLED = "coupled_input_forget_gate_lstm_cell"


@pytest.mark.parametrize("cell", ["LSTMCell", "BasicLSTMCell", "LSTMBlockCell", "CudnnLSTM"])
@pytest.mark.parametrize("where", ["rnn", "rnn/multi_rnn_cell/cell_0", "bidirectional_rnn/fw"])
def test_a_cell_of_three_gates_is_no_lstm(cell, where):
    """Its kernel, [3 + 4, 3 * 4], has the shape of that of an LSTM with I = 4, H = 3."""
    scope = f"{where}/{COUPLED}"
    variables = {f"{scope}/kernel": numbers(7, 12), f"{scope}/bias": numbers(12)}
    assert list_tf1(Reader(variables)) == ()
    for above in ("", where):
        with pytest.raises(ValueError, match=f"there is no {cell} "):
            weights.from_tf1(Reader(variables), cell=cell, scope=above)
    with pytest.raises(weights.UnsupportedError, match=f"name of another kind of cell, {COUPLED}"):
        weights.from_tf1(Reader(variables), cell=cell, scope=scope)


@pytest.mark.parametrize("where", ["rnn/multi_rnn_cell/cell_0", "bidirectional_rnn/fw"])
def test_cells_of_a_network_need_their_names_too(where):
    variables = lstm_variables(f"{where}/mine")
    with pytest.raises(ValueError, match="A cell with a custom name needs its complete scope"):
        weights.from_tf1(Reader(variables), cell="LSTMCell")
    found = weights.from_tf1(Reader(variables), cell="LSTMCell", scope=f"{where}/mine")
    assert found.layers[0].forward.units == 4


def test_a_scope_with_other_variables_is_no_cell():
    """Of a norm within the cell, say; the variables of an optimizer are no others."""
    variables = lstm_variables("rnn/lstm_cell")
    slots = {f"rnn/lstm_cell/{name}/Adam_1": value for name, value in [("kernel", numbers(7, 16))]}
    want = weights.from_tf1(Reader(variables), cell="LSTMCell")
    assert weights.from_tf1(Reader(variables | slots), cell="LSTMCell") == want
    norm = {"rnn/lstm_cell/input/gamma": numbers(4)}
    assert list_tf1(Reader(variables | norm)) == ()
    for scope in ("", "rnn/lstm_cell"):
        with pytest.raises(ValueError, match="there is no LSTMCell"):
            weights.from_tf1(Reader(variables | norm), cell="LSTMCell", scope=scope)


def test_the_cell_must_be_the_one_that_the_scope_names():
    """A CudnnLSTM has no forget bias, an LSTMCell has 1."""
    scope = "rnn/cudnn_compatible_lstm_cell"
    with pytest.raises(weights.UnsupportedError, match="of another kind of cell, cudnn_compatible"):
        weights.from_tf1(Reader(lstm_variables(scope)), cell="LSTMCell", scope=scope)


def test_some_peepholes_are_an_error():
    variables = lstm_variables("rnn/lstm_cell") | {"rnn/lstm_cell/w_i_diag": numbers(4)}
    with pytest.raises(ValueError, match="has peepholes, but no w_f_diag and w_o_diag"):
        weights.from_tf1(Reader(variables), cell="LSTMCell")


def test_names_of_the_first_releases():
    variables = lstm_variables("rnn/basic_lstm_cell")
    old = {
        name.replace("kernel", "weights").replace("bias", "biases"): value
        for name, value in variables.items()
    }
    want = weights.from_tf1(Reader(variables), cell="BasicLSTMCell")
    assert weights.from_tf1(Reader(old), cell="BasicLSTMCell") == want


@pytest.mark.parametrize("cell", ["CudnnLSTM", "CudnnGRU"])
def test_both_biases_of_early_cudnn_checkpoints(cell):
    kind = cell.removeprefix("Cudnn").lower()
    described = weight_stacks.random_weights(Stack(kind, layers=2, dtype="float32"))
    variables = weights.to_tf1(described, cell=cell)
    for layer, described_layer in enumerate(described.layers):
        scope = f"rnn/multi_rnn_cell/cell_{layer}/cudnn_compatible_{kind}_cell"
        for n, bias in enumerate((described_layer.forward.b_x, described_layer.forward.b_h)):
            if kind == "lstm":
                i, f, c, o = bias
                variables[f"{scope}/bias_cudnn_{n}"] = np.concatenate([i, c, f, o])
            else:
                variables[f"{scope}/bias_cudnn {n}"] = bias[:2].ravel()
    assert weights.from_tf1(Reader(variables), cell=cell) == described


def test_a_missing_layer_is_an_error():
    scopes = ("rnn/multi_rnn_cell/cell_0/lstm_cell", "rnn/multi_rnn_cell/cell_2/lstm_cell")
    variables = lstm_variables(scopes[0]) | lstm_variables(scopes[1], 4)
    with pytest.raises(ValueError, match="no LSTMCell in layer 1, forward"):
        weights.from_tf1(Reader(variables), cell="LSTMCell")


@pytest.mark.parametrize("other", ["cell_00", "cell_\u0660", "fw"])
def test_two_cells_of_one_place_are_an_error(other):
    scopes = "rnn/cell_0/lstm_cell", f"rnn/{other}/lstm_cell"
    variables = lstm_variables(scopes[0]) | lstm_variables(scopes[1])
    with pytest.raises(ValueError, match="there is more than one LSTMCell|has two LSTMCell"):
        weights.from_tf1(Reader(variables), cell="LSTMCell")
    read = weights.from_tf1(Reader(variables), cell="LSTMCell", scope=scopes[1])
    assert read == weights.from_tf1(Reader(lstm_variables(scopes[1])), cell="LSTMCell")


def test_two_names_of_one_variable_are_no_cell():
    variables = lstm_variables("rnn/lstm_cell")
    early = {"rnn/lstm_cell/weights": variables["rnn/lstm_cell/kernel"] + 1}
    for both in (variables | early, early | variables):
        with pytest.raises(ValueError, match="there is no LSTMCell in this checkpoint"):
            weights.from_tf1(Reader(both), cell="LSTMCell")


@pytest.mark.parametrize(
    "cell, arguments, words",
    [
        ("NASCell", {}, "cell must be one of .*, got 'NASCell'"),
        ("GRUCell", {"forget_bias": 1.0}, "forget_bias is for LSTM cells, GRUCell has no"),
        ("BasicLSTMCell", {"cell_clip": 1.0}, "cell_clip is for LSTMCell and the LSTM block"),
        ("LSTMCell", {"scope": "decoder"}, "no LSTMCell below the scope 'decoder'; it holds rnn"),
    ],
)
def test_wrong_arguments_are_refused(cell, arguments, words):
    with pytest.raises(ValueError, match=words):
        weights.from_tf1(Reader(lstm_variables("rnn/lstm_cell")), cell=cell, **arguments)


def test_what_is_no_checkpoint_of_tensorflow_1_is_refused(tf, tmp_path):
    with pytest.raises(TypeError, match="expected the path of a checkpoint .* got dict"):
        weights.from_tf1({}, cell="LSTMCell")
    with pytest.raises(tf.errors.NotFoundError):
        weights.from_tf1(tmp_path / "nothing", cell="LSTMCell")
    path = tf.train.Checkpoint(v=tf.Variable(numbers(7, 16))).write(str(tmp_path / "objects"))
    with pytest.raises(ValueError, match="object-based checkpoint"):
        weights.from_tf1(path, cell="LSTMCell")


def test_mixed_directions_and_wrong_options_are_refused():
    one = weight_stacks.random_weights(Stack("lstm", layers=2, directions=2))
    first = dataclasses.replace(one.layers[1], backward=None)
    mixed = dataclasses.replace(one, layers=[one.layers[0], first])
    with pytest.raises(weights.UnsupportedError, match="here they are mixed"):
        weights.to_tf1(mixed, cell="LSTMCell")
    with pytest.raises(ValueError, match="swapped_names is for GRUBlockCell, not for LSTMCell"):
        weights.to_tf1(one, cell="LSTMCell", swapped_names=True)


def test_two_biases_become_their_sum():
    described = weight_stacks.random_weights(Stack("lstm", dtype="float32"))
    one = described.layers[0].forward
    variables = weights.to_tf1(described, cell="LSTMCell", forget_bias=0.0)
    i, f, c, o = one.b_x + one.b_h
    assert bits(variables["rnn/lstm_cell/bias"]) == bits(np.concatenate([i, c, f, o]))
    bare = weight_stacks.random_weights(Stack("lstm", biases=(), dtype="float32"))
    zeros = weights.to_tf1(bare, cell="LSTMCell", forget_bias=0.0)["rnn/lstm_cell/bias"]
    assert bits(zeros) == bits(np.zeros(16, "f4"))
