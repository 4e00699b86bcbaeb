"""Models with cuDNN ops that were made without the package: they run and train here, on a CPU."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import children, compare, cudnn_ops, tolerances
from helpers.cudnn_ops import Call
from helpers.programs import cudnn_saved_model_child as maker
from helpers.reference.stack import Network

pytestmark = [pytest.mark.types, pytest.mark.xdist_group("saved models")]

CALL = Call(
    Network("lstm", maker.LAYERS, 2, maker.INPUTS, maker.UNITS),
    maker.STEPS,
    maker.BATCH,
    maker.LENGTHS,
    time_major=False,
)
BOUND = tolerances.stack_bound("float", CALL.longest_sum(), maker.LAYERS)
COMPOSED = tolerances.composed_bound("float", 4 * CALL.longest_sum())


@pytest.fixture(scope="module")
def made(tfb, tmp_path_factory):
    """The folder of the models, once per process of tests."""
    del tfb
    folder = tmp_path_factory.mktemp("models")
    program = str(children.PROGRAMS / "cudnn_saved_model_child.py")
    out = children.assert_ok(children.run_python([program, str(folder)]), "the maker of models")
    errors = json.loads(out.strip().splitlines()[-1])
    assert set(errors) == {"stock", "graph", "keras"}
    for name, error in errors.items():
        assert "No OpKernel was registered to support Op 'CudnnRNN" in error, (name, error)
    return folder


@pytest.fixture(scope="module")
def values(made):
    with np.load(made / "arrays.npz") as file:
        return dict(file)


def _reference(values, params=None):
    arrays = {
        "input": np.swapaxes(values["x"], 0, 1),
        "input_h": np.swapaxes(values["h"], 0, 1),
        "input_c": np.swapaxes(values["c"], 0, 1),
        "params": values["params"] if params is None else params,
    }
    return CALL.run(arrays)


def test_saved_model_is_differentiated(made, values):
    """By a tape around what was loaded: to its variable and to its input."""
    loaded = tf.saved_model.load(str(made / "stock"))
    x = tf.constant(values["x"])
    run = _reference(values)
    cotangents = CALL.cotangents("float")
    with tf.GradientTape() as tape:
        tape.watch(x)
        outputs = loaded(x, tf.constant(maker.LENGTHS))
    given = [tf.constant(CALL.laid_out(c)) for c in cotangents]
    d_x, d_params = tape.gradient(outputs, [x, loaded.params], output_gradients=given)
    want = run.backward(*cotangents)
    compare.assert_close(CALL.laid_out(d_x.numpy()), want["input_backprop"], COMPOSED)
    compare.assert_close(d_params, want["params_backprop"], COMPOSED)


def test_saved_model_trains_by_its_own_steps(made, values):
    """The Backprop op in the saved graph: one step is the reference's, and many lower the loss."""
    loaded = tf.saved_model.load(str(made / "stock"))
    target, lengths = tf.constant(values["target"]), tf.constant(maker.LENGTHS)
    run = _reference(values)
    difference = run.output - np.swapaxes(values["target"], 0, 1)
    gradient = run.backward(2 * difference / difference.size, None, None)["params_backprop"]
    losses = [float(loaded.train(tf.constant(values["x"]), lengths, target))]
    compare.assert_close(losses[0], np.mean(difference**2), COMPOSED)
    step = (values["params"] - loaded.params.numpy()) / maker.RATE
    # What is left of a small step in a large parameter: half an eps of it for each.
    rounding = tolerances.EPS["float"] * np.linalg.norm(values["params"]) / maker.RATE
    bound = COMPOSED + rounding / np.linalg.norm(gradient)
    compare.assert_close(step, gradient, bound)
    losses += [float(loaded.train(tf.constant(values["x"]), lengths, target)) for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]


def test_saved_model_is_fine_tuned_and_saved_again(made, values, tmp_path):
    loaded = tf.saved_model.load(str(made / "stock"))
    x, lengths = tf.constant(values["x"]), tf.constant(maker.LENGTHS)
    target = tf.constant(values["target"])

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((loaded(x, lengths)[0] - target) ** 2)
        loaded.params.assign_sub(maker.RATE * tape.gradient(loss, loaded.params))
        return loss

    losses = [float(step()) for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]
    tf.saved_model.save(loaded, str(tmp_path / "again"))
    again = tf.saved_model.load(str(tmp_path / "again"))
    assert cudnn_ops.bits(again(x, lengths)) == cudnn_ops.bits(loaded(x, lengths))
    want = _reference(values, again.params.numpy()).output
    compare.assert_close(CALL.laid_out(again(x, lengths)[0].numpy()), want, BOUND)


def _imported(path, inputs, outputs):
    """A function of the tensors of a frozen GraphDef."""
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(path.read_bytes())
    wrapped = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
    return wrapped.prune(inputs, outputs)


def _ends(path):
    """Names of the placeholders and of the last nodes of a frozen graph."""
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(path.read_bytes())
    inputs = [n.name + ":0" for n in graph.node if n.op == "Placeholder"]
    used = {i.lstrip("^").split(":")[0] for n in graph.node for i in n.input}
    last = [n.name for n in graph.node if n.name not in used and n.op == "Identity"]
    return inputs, [n + ":0" for n in last]


def test_frozen_graph_runs_and_is_differentiated(made, values):
    inputs, outputs = _ends(made / "frozen.pb")
    assert (len(inputs), len(outputs)) == (2, 3)
    function = _imported(made / "frozen.pb", inputs, sorted(outputs))
    x, lengths = tf.constant(values["x"]), tf.constant(maker.LENGTHS)
    with tf.GradientTape() as tape:
        tape.watch(x)
        got = function(x, lengths)
    run = _reference(values)
    for value, want in zip(got, run.outputs().values(), strict=True):
        compare.assert_close(CALL.laid_out(value.numpy()), want, BOUND)
    want = run.backward(np.ones_like(run.output), None, None)["input_backprop"]
    compare.assert_close(CALL.laid_out(tape.gradient(got[0], x).numpy()), want, COMPOSED)


@pytest.mark.parametrize("name", ["CudnnRNN", "CudnnRNNV2"])
def test_graph_of_version_1(made, values, name):
    """A GraphDef in a session, its gradients in it, its nodes placed on a GPU."""
    graph = tf.Graph()
    with graph.as_default():
        definition = tf.compat.v1.GraphDef()
        definition.ParseFromString((made / "graph.pb").read_bytes())
        tf.import_graph_def(definition, name="")
    assert "GPU:0" in graph.get_operation_by_name(name).device
    call = dataclasses.replace(CALL, lengths=None, time_major=True)
    keys = {"input": "x", "input_h": "h", "input_c": "c"}
    arrays = {k: np.swapaxes(values[short], 0, 1) for k, short in keys.items()}
    arrays["params"] = values["params"]
    run = call.run(arrays)
    feeds = {f"{k}:0": v for k, v in arrays.items()}
    fetches = [f"{name}:{k}" for k in range(3)] + [f"{name}_{k}_gradient:0" for k in arrays]
    options = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    with tf.compat.v1.Session(graph=graph, config=options) as session:
        got = session.run(fetches, feeds)
    for value, want in zip(got[:3], run.outputs().values(), strict=True):
        compare.assert_close(value, want, BOUND)
    want = run.backward(2 * run.output, None, np.ones_like(run.output_c))
    for value, expected in zip(got[3:], want.values(), strict=True):
        compare.assert_close(value, expected, COMPOSED)


def _keras_bounds(values):
    # Three layers below one another; Keras' own run, which it is compared with, errs as much.
    sums = maker.STEPS * 3 * 4 * (maker.INPUTS + 2 * maker.UNITS)
    return tolerances.parity_bound("float", sums), 2 * tolerances.composed_bound("float", sums)


def _cudnn_nodes(function) -> int:
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    return sum(n.op == "CudnnRNNV3" for n in nodes)


def test_keras_model_that_chose_cudnn(made, values):
    """Traced where Keras took the cuDNN op: its outputs and gradients are those of Keras itself."""
    loaded = tf.saved_model.load(str(made / "keras"))
    x = tf.constant(maker.padded(values))
    assert _cudnn_nodes(loaded.serve.get_concrete_function(x)) >= 4
    with tf.GradientTape() as tape:
        output = loaded.serve(x)
        loss = tf.reduce_sum(output**2)
    bound, composed = _keras_bounds(values)
    compare.assert_close(output, values["keras_output"], bound)
    gradients = tape.gradient(loss, list(loaded.variables_of))
    assert len(gradients) == sum(k.startswith("keras_gradient") for k in values) == 14
    for number, gradient in enumerate(gradients):
        want = values[f"keras_gradient_{number}"]
        assert np.any(want)
        compare.assert_close(gradient, want, composed, f"{loaded.variables_of[number].name}")


def test_keras_export_and_frozen_keras(made, values):
    x = tf.constant(maker.padded(values))
    bound, _ = _keras_bounds(values)
    exported = tf.saved_model.load(str(made / "export"))
    compare.assert_close(exported.serve(x), values["keras_output"], bound)
    inputs, outputs = _ends(made / "keras_frozen.pb")
    function = _imported(made / "keras_frozen.pb", inputs, outputs)
    compare.assert_close(function(x)[0], values["keras_output"], bound)


def test_importing_the_package_after_loading_is_early_enough(made, values):
    """What counts is that the kernels are there when the graph runs, and not when it is loaded."""
    result = children.run_code(
        "import sys, numpy as np, tensorflow as tf\n"
        "folder, out = sys.argv[1:]\n"
        "loaded = tf.saved_model.load(folder + '/stock')\n"
        "values = np.load(folder + '/arrays.npz')\n"
        "assert 'tf_blockrnn' not in sys.modules\n"
        "import tf_blockrnn\n"
        "from helpers.programs import cudnn_saved_model_child as maker\n"
        "got = loaded(tf.constant(values['x']), tf.constant(maker.LENGTHS))\n"
        "np.save(out, got[0].numpy())\n".replace("sys.argv[1:]", repr([str(made), f"{made}/o.npy"]))
    )
    children.assert_ok(result, "loading before the import")
    got = np.load(made / "o.npy")
    compare.assert_close(CALL.laid_out(got), _reference(values).output, BOUND)
