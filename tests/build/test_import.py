"""What an import of the package imports, and what loads the ops: each in a fresh process."""

from __future__ import annotations

import sys
import textwrap

import numpy as np
import pytest
from helpers.children import assert_ok, run_python

from tf_blockrnn import weights

pytestmark = pytest.mark.packages


def run_fresh(code: str, **extra: str) -> str:
    """The output of a program in a process that has imported nothing."""
    result = run_python(["-c", textwrap.dedent(code)], fresh=True, timeout=120, **extra)
    return assert_ok(result, "the program")


BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras", "tf_keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""

# No framework is needed for arrays, nor TensorFlow for another framework.
WITHOUT = """
import importlib, io, pathlib, sys
import numpy as np
import tf_blockrnn, tf_blockrnn.inference, tf_blockrnn.weights
from tf_blockrnn import LSTMState, inference, weights

assert tf_blockrnn.__version__ and {"lstm", "weights", "LSTMState"} <= set(dir(tf_blockrnn))
assert LSTMState(h=1, cs=2).cs == tf_blockrnn.GRUOutputs(1, 2, 3, 4).u == 2
try:
    tf_blockrnn.no_such_name
except AttributeError as error:
    assert "no_such_name" in str(error)
else:
    raise AssertionError("a name that does not exist")
rng = np.random.default_rng(0)
one = weights.DirectionWeights(
    rng.normal(size=[3, 5, 4]), rng.normal(size=[3, 4, 4]), np.zeros([3, 4]), np.zeros([3, 4]))
gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
import ml_dtypes

for kind in ("float64", ml_dtypes.bfloat16):
    given, file = gru.astype(kind), io.BytesIO()
    weights.to_npz(given, file)
    file.seek(0)
    assert weights.from_npz(file) == given
    assert weights.from_keras(weights.to_keras(given), cell="gru") == given
    assert weights.from_torch(weights.to_torch(given)) == given
    assert weights.from_onnx(weights.to_onnx_model(given)) == {"gru_0": given}

session = inference.Session(gru)
outputs, state = session.run(np.ones([2, 7, 5]), lengths=[7, 3])
assert outputs.shape == (2, 7, 4) and state.shape == (2, 4) and outputs[0].all()
streams = inference.Streams(session, 2)
assert streams.step([streams.join()], np.ones([1, 5])).shape == (1, 4)
packed = tf_blockrnn.pack_sequences([np.ones([3, 5]), np.ones([2, 5])], 4)
assert packed.x.shape == (2, 4, 5)
assert len(tf_blockrnn.unpack_sequences(packed.x, packed.index)) == 2
try:
    inference.Session(object())
except TypeError as error:
    assert "source must be a weights.RecurrentWeights" in str(error)
else:
    raise AssertionError("an object that is no source")
# All modules of both.
for folder in (inference, weights):
    for file in pathlib.Path(folder.__file__).parent.glob("*.py"):
        if file.stem != "__init__":
            importlib.import_module(f"{folder.__name__}.{file.stem}")
found = {name.split(".")[0] for name in sys.modules} & {"tensorflow", "keras", "tf_keras"}
assert not found, found
"""

REFUSALS = """
def refused(use, kind=ImportError, start=""):
    try:
        use()
    except kind as error:
        assert str(error).startswith(f"{start}tf_blockrnn cannot import TensorFlow: Mod"), error
    else:
        raise AssertionError("not refused")

for name in tf_blockrnn.__all__:
    if name not in vars(tf_blockrnn):
        assert not hasattr(tf_blockrnn, name)
        refused(lambda: getattr(tf_blockrnn, name), AttributeError, f"tf_blockrnn.{name}: ")
        refused(lambda: exec(f"from tf_blockrnn import {name}"))
for name in ("layers", "raw_ops", "_ops.sequences", "_ops"):
    refused(lambda: importlib.import_module(f"tf_blockrnn.{name}"))
refused(tf_blockrnn.build_info)
refused(lambda: weights.to_cudnn(gru))
"""


def test_weights_are_converted_without_tensorflow():
    run_fresh(WITHOUT)


def test_weights_are_converted_where_tensorflow_is_not_installed():
    run_fresh(BLOCK + WITHOUT + REFUSALS)


def test_bfloat16_without_its_package(tmp_path, monkeypatch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    one = weights.DirectionWeights(np.ones([1, 2, 3]), np.ones([1, 3, 3]))
    rnn = weights.RecurrentWeights("rnn_tanh", [weights.LayerWeights(one)])
    weights.to_npz(rnn.astype(ml_dtypes.bfloat16), tmp_path / "rnn.npz")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ModuleNotFoundError, match="need the package ml_dtypes") as raised:
        weights.from_npz(tmp_path / "rnn.npz")
    assert raised.value.name == "ml_dtypes"


def test_the_command_converts_files_without_tensorflow(tmp_path):
    import keras

    model = keras.Sequential([keras.Input((None, 3)), keras.layers.LSTM(4, name="lstm")])
    model.save_weights(tmp_path / "a.weights.h5")
    code = f"""
    import os
    from tf_blockrnn.__main__ import main
    os.chdir({str(tmp_path)!r})
    steps = ["a.weights.h5", "b.npz", "c.pt", "d.onnx", "e.npz"]
    kinds = ["npz", "torch", "onnx", "npz"]
    for source, target, kind in zip(steps, steps[1:], kinds):
        assert main(["convert", source, target, "--to", kind]) == 0, target
    assert main(["convert", "e.npz", "f.keras", "--to", "keras"]) == 1
    """
    result = run_python(["-c", BLOCK + textwrap.dedent(code)], fresh=True)
    assert_ok(result, "the program")
    assert result.stderr.endswith("convert: this needs the package keras: it is missing\n")
    first, last = (weights.from_npz(tmp_path / name) for name in ("b.npz", "e.npz"))
    kernel = model.layers[0].get_weights()[0]
    np.testing.assert_array_equal(np.hstack(list(first.layers[0].forward.w_x)).shape, kernel.shape)
    np.testing.assert_array_equal(first.layers[0].forward.w_x, last.layers[0].forward.w_x)


# ---- what loads the ops

# That the op library is loaded, gradients are registered, and names work.
WORKS = """
import tensorflow as tf
from tensorflow.python.framework import ops
assert ops.gradient_registry.lookup("BlockRNN>CudnnRNN")
ops.gradient_registry.lookup("GRUBlockCell")
import tf_blockrnn
x, w_x, w_h, b = tf.ones([2, 5, 3]), tf.ones([3, 16]), tf.ones([4, 16]), tf.zeros([16])
outputs, state = tf_blockrnn.lstm(x, w_x, w_h, b)
assert isinstance(state, tf_blockrnn.LSTMState) and outputs.shape == [2, 5, 4]
assert tf_blockrnn.lstm is vars(tf_blockrnn)["lstm"]
assert tf_blockrnn.raw_ops.LSTMSequence and tf_blockrnn.build_info()["cpu_isa"]
"""


@pytest.mark.parametrize(
    "first",
    [
        "import tf_blockrnn, tensorflow",
        "import tensorflow, tf_blockrnn",
        "import tf_blockrnn.layers",
    ],
)
def test_what_loads_the_ops(first):
    result = run_python(["-W", "error::RuntimeWarning", "-c", first + WORKS], fresh=True)
    assert_ok(result, first)


@pytest.mark.parametrize("switch, registered", [("0", False), ("1", True)])
def test_the_switch_holds_where_tensorflow_is_imported_later(switch, registered):
    """TensorFlow's cuDNN ops have a kernel of ours or none, and every one of ours has its own."""
    code = f"""
    import tf_blockrnn
    import tensorflow
    from tensorflow.python.framework import kernels, ops
    def on_cpu(op):
        found = kernels.get_registered_kernels_for_op(op).kernel
        return any(kernel.device_type == "CPU" for kernel in found)
    names = [name for name in tf_blockrnn.raw_ops.__all__ if name.startswith("Cudnn")]
    assert [on_cpu(name) for name in names] == [{registered}] * 11
    assert all(on_cpu("BlockRNN>" + name) for name in names)
    try:
        ops.gradient_registry.lookup("LSTMBlockCell")
        assert {registered}
    except LookupError:
        assert not {registered}
    """
    run_fresh(code, TF_BLOCKRNN_EXTEND_TF=switch)


@pytest.mark.parametrize("switch", ["off", "00", " 0", "2"])
def test_a_wrong_switch_is_refused_at_once_without_tensorflow(switch):
    """Python refuses it before the library is loaded, to which all but 0 is on."""
    code = "import sys\ntry: import tf_blockrnn\nfinally: print('tensorflow' in sys.modules)"
    result = run_python(["-c", code], fresh=True, TF_BLOCKRNN_EXTEND_TF=switch)
    assert result.returncode == 1 and result.stdout == "False\n"
    message = f"ImportError: TF_BLOCKRNN_EXTEND_TF must be 0 or 1, or not set; it is {switch!r}"
    assert message in result.stderr


def test_a_failure_leaves_the_import_of_tensorflow_alone(tmp_path):
    """It is a warning there, and an error with the first use of a name, again and again."""
    (tmp_path / "tensorflow.py").write_text("__version__ = '2.99.0'\n")
    code = f"""
    import sys, warnings
    sys.path.insert(0, {str(tmp_path)!r})
    import tf_blockrnn
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import tensorflow
        (warning,) = caught
        assert "but this is TensorFlow 2.99.0" in str(warning.message)
        for _ in range(2):
            try:
                from tf_blockrnn import lstm
            except ImportError as error:
                assert "but this is TensorFlow 2.99.0" in str(error)
            else:
                raise AssertionError("not refused")
    assert len(caught) == 1
    assert tf_blockrnn.weights.RecurrentWeights
    """
    run_fresh(code)


def test_a_first_use_that_fails_warns_of_nothing(tmp_path):
    (tmp_path / "tensorflow.py").write_text("__version__ = '2.99.0'\n")
    code = f"""
    import sys, warnings
    warnings.simplefilter("error")
    sys.path.insert(0, {str(tmp_path)!r})
    import tf_blockrnn
    try:
        tf_blockrnn.lstm
    except AttributeError as error:
        assert "tf_blockrnn was built for TensorFlow " in str(error), error
    else:
        raise AssertionError("not refused")
    """
    run_fresh(code)


THREADS = """
import importlib, sys, threading, time

def wait_for(name):
    while name not in sys.modules:
        time.sleep(1e-4)

def run(*functions):
    errors = []
    barrier = threading.Barrier(len(functions))
    def call(function):
        barrier.wait()
        try:
            function()
        except BaseException as error:
            errors.append((function, error))
            raise
    threads = [threading.Thread(target=call, args=[one], daemon=True) for one in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive(), "a deadlock"
    assert not errors, errors

def use(name):
    return lambda: getattr(importlib.import_module("tf_blockrnn"), name)

def load(name):
    return lambda: importlib.import_module(name)

def call_an_op():
    import tensorflow as tf
    tf.raw_ops.GRUBlockCell  # by its name in a graph, as a SavedModel has it
    from tensorflow.python.framework import ops
    ops.gradient_registry.lookup("GRUBlockCell")
"""


# Imports of TensorFlow and of Keras that begin in two threads at the same time fail without this
# package too: Keras begins with a module inside of TensorFlow, which the other thread then needs.
@pytest.mark.parametrize(
    "program",
    [
        # First uses, and imports of TensorFlow, which must not end before the ops are loaded.
        """
        import tf_blockrnn
        run(use("lstm"), call_an_op, call_an_op, *map(use, ["raw_ops", "layers", "fuse_model"]))
        """,
        # A use while another thread is importing TensorFlow.
        """
        import tf_blockrnn
        def later():
            wait_for("tensorflow")
            tf_blockrnn.lstm
        run(call_an_op, later, later)
        """,
        # The import of the package while another thread is importing TensorFlow or Keras.
        """
        def later():
            wait_for("tensorflow")
            importlib.import_module("tf_blockrnn").lstm
        run(load("keras"), later, later)
        """,
        # All at once.
        """
        run(load("tensorflow"), load("tf_blockrnn"), use("lstm"), use("layers"))
        """,
    ],
    ids=["uses and imports", "late uses", "late imports", "imports"],
)
def test_threads(program):
    run_fresh(THREADS + textwrap.dedent(program) + WORKS)
