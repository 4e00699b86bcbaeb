"""`model.export` of plain Keras layers while `enable_keras` is on, and the way around the ops."""

from __future__ import annotations

import warnings

import keras
import numpy as np
import pytest
from helpers.children import assert_ok, run_python

X = np.linspace(-1, 1, 2 * 5 * 3, dtype=np.float32).reshape(2, 5, 3)


@pytest.fixture(autouse=True)
def _off_again(tfb):
    yield
    tfb.disable_keras()


def made():
    lstm = keras.layers.Bidirectional(keras.layers.LSTM(4, name="lstm"), name="both")
    return keras.Sequential([keras.Input((None, 3)), lstm, keras.layers.Dense(2)])


def content(folder) -> bytes:
    return (folder / "saved_model.pb").read_bytes()


def test_the_file_needs_the_package_and_says_so(tf, tfb, tmp_path):
    model, path = made(), tmp_path / "served"
    with tfb.enable_keras():
        want = model.predict(X, verbose=0)
        words = "needs tf_blockrnn.*both/forward_lstm, both/backward_lstm.*disable_keras"
        with pytest.warns(UserWarning, match=words) as said:
            model.export(path, verbose=False)
        assert [w.filename for w in said if "needs tf_blockrnn" in str(w.message)] == [__file__]
    assert b"BlockRNN>LSTMSequence" in content(path)
    # What docs/serving.md quotes.
    load = f"import tensorflow as tf; model = tf.saved_model.load({str(path)!r})"
    failed = run_python(["-c", load])
    assert failed.returncode == 1
    assert "Op type not registered 'BlockRNN>LSTMSequence' in binary running on" in failed.stderr
    minor = ".".join(tf.__version__.split(".")[:2])
    file = f"{tfb.__path__[0]}/libblockrnn_ops_tf{minor}.so"
    library = f"import tensorflow as tf; tf.load_op_library({file!r})"
    for first in ("import tf_blockrnn", library):
        code = f"{first}\n{load}\nprint(model.serve({X.tolist()}).numpy().tolist())"
        out = assert_ok(run_python(["-c", code]), "the program")
        np.testing.assert_allclose(eval(out.splitlines()[-1]), want, atol=1e-6)


def test_without_the_switch_it_needs_nothing_of_ours(tfb, tmp_path):
    """Also of a model that was traced on the ops before."""
    model, path = made(), tmp_path / "served"
    model.compile("sgd", "mse")
    with tfb.enable_keras():
        model.fit(X, np.ones((2, 2)), verbose=0)
        want = model.predict(X, verbose=0)
        with tfb.disable_keras(), warnings.catch_warnings():
            warnings.simplefilter("error")
            model.export(path, verbose=False)
        assert tfb.keras_enabled()
    assert b"BlockRNN" not in content(path)
    code = f"""
import sys, tensorflow as tf
model = tf.saved_model.load({str(path)!r})
print(model.serve({X.tolist()}).numpy().tolist())
assert "tf_blockrnn" not in sys.modules
"""
    out = assert_ok(run_python(["-c", code]), "the program")
    np.testing.assert_allclose(eval(out.splitlines()[-1]), want, atol=1e-5)


@pytest.mark.parametrize("kind", ["ours", "our cell", "relu", "dense"])
def test_no_warning_where_the_switch_changes_nothing(tfb, tmp_path, kind):
    layer = {
        "ours": lambda: tfb.layers.GRU(4),  # whoever chose it knows
        "our cell": lambda: keras.layers.RNN(tfb.layers.GRUCell(4)),
        "relu": lambda: keras.layers.GRU(4, activation="relu"),
        "dense": lambda: keras.layers.Dense(4),
    }[kind]()
    model = keras.Sequential([keras.Input((None, 3)), layer])
    with tfb.enable_keras(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*falls back")
        model.export(tmp_path, verbose=False)
    assert (b"BlockRNN" in content(tmp_path)) == ("our" in kind)


def test_keras_own_export_is_back_after_the_switch(tfb):
    plain = vars(keras.Model)["export"]
    with tfb.enable_keras():
        assert vars(keras.Model)["export"] is not plain
    assert vars(keras.Model)["export"] is plain
