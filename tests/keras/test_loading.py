"""Saved and pickled models in processes that have imported `tf_blockrnn` and nothing of its own."""

from __future__ import annotations

import pickle
import sys
import textwrap
import unittest.mock

import keras
import numpy as np
import pytest
from helpers import covering
from helpers.children import assert_ok, run_code, run_python

pytestmark = pytest.mark.packages

X = np.linspace(-1, 1, 2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)


@pytest.fixture(scope="module")
def saved(tfb, tmp_path_factory):
    """A folder with a model in each form, and what it computes."""
    folder = tmp_path_factory.mktemp("saved")
    model = keras.Sequential(
        [
            keras.Input((None, 3)),
            keras.layers.Bidirectional(tfb.layers.LSTM(3, return_sequences=True)),
            tfb.layers.GRU(3, return_sequences=True),
            keras.layers.RNN(tfb.layers.GRUCell(3, reset_after=False), return_sequences=True),
            tfb.layers.SimpleRNN(2),
        ]
    )
    model.save(folder / "model.keras")
    model.save(folder / "model.h5")
    model.export(folder / "exported", verbose=False)
    (folder / "model.pickle").write_bytes(pickle.dumps(model))
    np.savez(folder / "numbers.npz", x=X, y=model(X))
    return folder


def assert_computes(saved, program: str, *, fresh: bool = False) -> None:
    """That a program, in which `folder` is where the files are, sets `y` to the right numbers.

    In a `fresh` process nobody has imported TensorFlow before the program does.
    """
    code = textwrap.dedent(program).format(folder=str(saved))
    code = f"""
import numpy as np
numbers = np.load({str(saved / "numbers.npz")!r})
x, want = numbers["x"], numbers["y"]
{code}
np.testing.assert_allclose(np.asarray(y), want, rtol=1e-6, atol=1e-6)
"""
    assert_ok(run_python(["-c", code], fresh=fresh), "the program")


LOADS = {
    "keras": "y = keras.models.load_model('{folder}/model.keras')(x)",
    "h5": "y = keras.models.load_model('{folder}/model.h5', compile=False)(x)",
    "pickle": "import pickle; y = pickle.load(open('{folder}/model.pickle', 'rb'))(x)",
    "layer": "y = keras.layers.TFSMLayer('{folder}/exported', call_endpoint='serve')(x)",
}
ORDERS = [
    "import tf_blockrnn; import keras",
    "import keras; import tf_blockrnn",
    "import tf_blockrnn; import tensorflow as tf; keras = tf.keras",
    "import tensorflow as tf; keras = tf.keras; keras.layers; import tf_blockrnn",
    "import tf_blockrnn; import keras.src.saving; import keras",
]


@pytest.mark.parametrize(("imports", "form"), covering.in_turn(ORDERS, list(LOADS)))
def test_files_load_after_imports_in_any_order(saved, imports, form):
    assert_computes(saved, f"{imports}\n{LOADS[form]}")


@pytest.mark.parametrize(
    "program",
    [
        LOADS["pickle"],
        # It needs the ops alone, and so none of the layers.
        "import tensorflow as tf\nm = tf.saved_model.load('{folder}/exported')\ny = m.serve(x)\n"
        "assert 'tf_blockrnn.layers' not in sys.modules",
    ],
    ids=["pickle", "tensorflow"],
)
def test_the_package_is_imported_before_tensorflow(saved, program):
    """And none of its names is used."""
    start = "import sys, tf_blockrnn\nassert 'tensorflow' not in sys.modules\n"
    assert_computes(saved, start + program, fresh=True)


def test_keras_layers_take_the_place_of_ours_without_the_package(saved):
    assert_computes(
        saved,
        """
        import sys, keras
        names = ("GRU", "LSTM", "SimpleRNN", "GRUCell")
        ours = {{f"tf_blockrnn>{{name}}": getattr(keras.layers, name) for name in names}}
        model = keras.saving.load_model("{folder}/model.keras", custom_objects=ours)
        assert type(model.layers[1]) is keras.layers.GRU and "tf_blockrnn" not in sys.modules
        y = model(x)
        """,
        fresh=True,
    )


def test_threads(saved):
    """The first import of Keras, and so of TensorFlow, is in several threads at once.

    None of them finds a layer or an op missing.
    """
    assert_computes(
        saved,
        """
        import concurrent.futures
        import tf_blockrnn

        def load(_):
            import keras
            return np.asarray(keras.saving.load_model("{folder}/model.keras")(x))

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            results = list(pool.map(load, range(8)))
        for y in results:
            np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-6)
        """,
        fresh=True,
    )


def test_import_of_the_package_imports_no_layers_for_the_registration(tfb):
    """TensorFlow may have imported Keras by then, and the layers cost as much as the package."""
    del tfb
    code = """
import sys
import tensorflow
had = set(sys.modules)
import tf_blockrnn
added = {name.split(".")[0] for name in set(sys.modules) - had}
assert not added & {"keras", "tf2onnx", "onnx", "tf_keras"}, added
import keras
assert "tf_blockrnn.layers" not in sys.modules
"""
    assert_ok(run_code(code), "import")


def test_every_serializable_class_is_registered(tfb):
    """Those that the layers register themselves, in the process that has imported them."""
    from tf_blockrnn import _integrations

    registered = keras.saving.get_custom_objects()
    own = {f"tf_blockrnn>{name}" for name in tfb.layers.__all__}
    assert own == {f"tf_blockrnn>{name}" for name in _integrations._LAYERS}
    assert own <= {name for name, value in registered.items() if issubclass(value, keras.Layer)}


# ---- the hook itself


MODULE = """
import importlib.resources
assert type(__spec__.loader).__module__.startswith("_frozen_importlib"), __spec__.loader
assert __loader__ is __spec__.loader
data = (importlib.resources.files(__name__) / "data.txt").read_text()
"""


@pytest.fixture
def package(tmp_path):
    """A folder with the package `watched`, and one, `broken`, that fails when it is imported."""
    for name, source in (("watched", MODULE), ("broken", "raise RuntimeError('broken')")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(source)
        (tmp_path / name / "data.txt").write_text("text")
        (tmp_path / name / "part.py").write_text("class C: pass")
    return tmp_path


HOOK_PROGRAMS = {
    "later, and again at a reload": """
        when_imported("watched", note)
        when_imported("watched", note)
        assert calls == []
        import watched
        assert calls == [watched, watched] and watched.data == "text"
        importlib.reload(watched)
        assert len(calls) == 4
    """,
    "at once where it is imported": """
        import watched
        when_imported("watched", note)
        assert calls == [watched]
    """,
    "submodules and pickles": """
        import pickle, inspect
        when_imported("watched.part", note)
        import watched
        assert calls == []
        from watched.part import C
        assert calls == [sys.modules["watched.part"]]
        assert type(pickle.loads(pickle.dumps(C()))) is C and inspect.getsource(C)
    """,
    "only looked for": """
        when_imported("watched", note)
        assert importlib.util.find_spec("watched").loader.is_package("watched")
        assert importlib.util.find_spec("watched").loader.get_code("watched")
        assert calls == [] and "watched" not in sys.modules
    """,
    "failed imports": """
        when_imported("broken", note)
        when_imported("missing", note)
        for name, error in (("broken", RuntimeError), ("missing", ModuleNotFoundError)) * 2:
            try:
                importlib.import_module(name)
            except error as raised:
                assert name in str(raised)
            else:
                raise AssertionError(name)
            assert name not in sys.modules
        assert calls == []
    """,
    "failed callbacks": """
        import warnings
        def fail(module):
            raise ValueError("no use")
        when_imported("watched", fail)
        when_imported("watched", note)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import watched
        assert calls == [watched]
        (warning,) = caught
        assert "watched" in str(warning.message) and "no use" in str(warning.message)
    """,
    "in another thread that is importing it": """
        import threading, time
        started = threading.Event()
        sys.modules["events"] = started
        import pathlib
        pathlib.Path("watched/__init__.py").write_text(
            "import sys, time\\nsys.modules['events'].set()\\ntime.sleep(0.5)\\ndone = True")
        thread = threading.Thread(target=importlib.import_module, args=["watched"])
        thread.start()
        started.wait()
        when_imported("watched", lambda module: calls.append(module.done))
        assert calls == [True]
        thread.join()
    """,
    "in another thread, where it fails": """
        import pathlib, threading
        from tf_blockrnn import _integrations
        sys.modules["events"] = started, waits = threading.Event(), threading.Event()
        pathlib.Path("watched/__init__.py").write_text(
            "import sys\\nstarted, waits = sys.modules['events']\\nstarted.set()\\nwaits.wait()\\n"
            "raise ImportError('broken')")

        def fails(name):
            try:
                importlib.import_module(name)
            except ImportError:
                calls.append("failed")

        def wait_for(name):
            waits.set()
            thread.join()
            __import__(name)

        thread = threading.Thread(target=fails, args=["watched"])
        thread.start()
        started.wait()
        _integrations.__import__ = wait_for
        when_imported("watched", note)
        assert calls == ["failed"]
    """,
}


@pytest.mark.parametrize("name", HOOK_PROGRAMS)
def test_hook(tfb, package, name):
    del tfb
    start = f"""
import importlib, importlib.util, os, sys
os.chdir({str(package)!r})
sys.path.insert(0, {str(package)!r})
from tf_blockrnn._integrations import when_imported
calls = []
note = calls.append
"""
    assert_ok(run_code(start + textwrap.dedent(HOOK_PROGRAMS[name])), name)


def test_import_of_tf_keras_does_not_wait_for_the_switch(tfb, monkeypatch):
    """Else it does so for ever: enable_keras, in another thread, waits for the import."""
    del tfb
    from tf_blockrnn import _enable_keras, _integrations

    lock = unittest.mock.MagicMock()
    lock.__enter__.side_effect = AssertionError("waits")
    monkeypatch.setattr(_enable_keras, "_lock", lock)
    _integrations._enable_tf_keras(None)


def test_tf_keras_stays_off_where_the_switch_is_turned_off_during_its_import(tfb, monkeypatch):
    del tfb
    from tf_blockrnn import _enable_keras, _integrations

    calls, on = [], iter([True, False])
    legacy = unittest.mock.Mock(enabled=lambda: False)
    legacy.enable.side_effect = lambda: calls.append("enable")
    legacy.disable.side_effect = lambda: calls.append("disable")
    monkeypatch.setattr(_enable_keras, "keras3_enabled", lambda: next(on))
    monkeypatch.setitem(sys.modules, "tf_blockrnn._enable_tf_keras", legacy)
    _integrations._enable_tf_keras(None)
    assert calls == ["enable", "disable"]
