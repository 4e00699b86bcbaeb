"""The C++ server example builds against TensorFlow's wheel and gives the numbers of Python."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.children import ROOT, assert_ok, environment
from helpers.covering import in_turn

import tf_blockrnn

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("serving")]

PACKAGE = pathlib.Path(tf_blockrnn.__file__).parent
REQUESTS, BATCH, STEPS, INPUTS = 12, 2, 9, 5


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What the documented command builds, with warnings as errors."""
    made = tmp_path_factory.mktemp("cpp_serving") / "serve"
    command = ["make", "-C", ROOT / "examples" / "cpp_serving", f"PYTHON={sys.executable}"]
    command += [f"OUTPUT={made}", "CXXFLAGS=-O1 -Wall -Wextra -Wpedantic -Werror"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert_ok(done, "make")
    return made


def run(program, *options, **variables) -> subprocess.CompletedProcess:
    return subprocess.run(
        [program, *map(str, options)],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def sequential() -> keras.Model:
    """Keras' layers on the fused ops, trained by nobody, with biases that are not zero."""
    model = keras.Sequential(
        [
            keras.Input((None, INPUTS)),
            keras.layers.Bidirectional(keras.layers.LSTM(7, return_sequences=True)),
            keras.layers.GRU(6),
            keras.layers.Dense(3),
        ]
    )
    return tf_blockrnn.fuse_model(randomise(model))


def functional() -> keras.Model:
    """Two inputs, one of them with fixed sizes, and two outputs, in another order than by name."""
    b, a = keras.Input((None, INPUTS), name="b"), keras.Input((4, 3), name="a")
    y, h = tf_blockrnn.layers.GRU(6, return_sequences=True, return_state=True, name="first")(b)
    z = tf_blockrnn.layers.SimpleRNN(6, name="second")(a, initial_state=h)
    return randomise(keras.Model([b, a], {"z": z, "y": y}))


def randomise(model: keras.Model) -> keras.Model:
    random = np.random.default_rng(3)
    model.set_weights([random.normal(0, 0.5, w.shape) for w in model.get_weights()])
    return model


MODELS = {
    "sequential": sequential,
    "functional": functional,
    "frozen": lambda: tf_blockrnn.freeze(sequential()),
    "frozen to int8": lambda: tf_blockrnn.freeze(sequential(), "int8"),
}


@pytest.fixture(scope="module")
def exported(request, tmp_path_factory):
    """A SavedModel, and what Python's call of it returns for each request, one array for each."""
    folder = str(tmp_path_factory.mktemp("exported") / "model")
    MODELS[request.param]().export(folder, verbose=False)
    signature = tf.saved_model.load(folder).signatures["serving_default"]
    specs = signature.structured_input_signature[1]
    wanted = []
    for r in range(REQUESTS):
        inputs = {}
        for name, spec in specs.items():
            open_dims = (BATCH, STEPS)
            dims = [open_dims[min(d, 1)] if n is None else n for d, n in enumerate(spec.shape)]
            x = 0.25 * ((np.arange(np.prod(dims)) + r) % 7 - 3)
            inputs[name] = tf.constant(x.reshape(dims), tf.float32)
        outputs = signature(**inputs)
        wanted.append(np.concatenate([outputs[k].numpy().ravel() for k in sorted(outputs)]))
    return folder, np.stack(wanted)


def requests(folder) -> list:
    return ["--model", folder, "--requests", REQUESTS, "--batch", BATCH, "--steps", STEPS]


@pytest.mark.parametrize(
    "exported, threads, callers",
    [(name, *run) for name, run in in_turn(MODELS, [(1, 1), (2, 3), (0, 2)])],
    indirect=["exported"],
)
def test_bits_of_python(program, exported, tmp_path, threads, callers):
    """Each request's own outputs, however many callers there are."""
    folder, wanted = exported
    written = tmp_path / "outputs"
    options = ["--package", PACKAGE, "--threads", threads, "--callers", callers]
    shown = assert_ok(run(program, *requests(folder), *options, "--output", written), "serve")
    got = np.fromfile(written, np.float32)
    np.testing.assert_array_equal(got, wanted.ravel())
    assert len({row.tobytes() for row in wanted[:7]}) == 7  # the requests differ
    assert f"TensorFlow {tf.__version__}, loaded" in shown
    assert re.search(rf"{REQUESTS} requests of {callers} callers: [1-9]\d* per second", shown)
    times = re.search(r"p50 (\d+) us, p95 (\d+) us, longest (\d+) us", shown).groups()
    assert 0 < int(times[0]) <= int(times[1]) <= int(times[2])


def test_no_python_in_it(program):
    needed = assert_ok(run("ldd", program), "ldd")
    assert "libtensorflow_cc.so.2 => /" in needed
    assert "python" not in re.sub(r"=>.*", "", needed)


@pytest.mark.parametrize("exported", ["sequential"], indirect=True)
def test_the_op_library_preloaded(program, exported, tmp_path):
    """As a server that links TensorFlow's shared library and has no option for op libraries."""
    folder, wanted = exported
    minor = ".".join(tf.__version__.split(".")[:2])
    library = PACKAGE / f"libblockrnn_ops_tf{minor}.so"
    written = tmp_path / "outputs"
    alone = run(program, *requests(folder))
    assert alone.returncode == 1
    assert "Op type not registered 'BlockRNN>LSTMSequence'" in alone.stderr
    preloaded = {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": tf.sysconfig.get_lib()}
    done = run(program, *requests(folder), "--output", written, **preloaded)
    assert_ok(done, "serve")
    np.testing.assert_array_equal(np.fromfile(written, np.float32), wanted.ravel())


@pytest.mark.parametrize(
    "options, status, message",
    [
        ([], 2, "--model must be given"),
        (["--model"], 2, "--model needs a value"),
        (["--speed", "1"], 2, "unknown option --speed"),
        (["--callers", "0"], 2, "--callers must be a whole number from 1 on, got 0"),
        (["--threads", "2x"], 2, "--threads must be a whole number from 0 on, got 2x"),
        (["--requests", ""], 2, "--requests must be a whole number from 1 on, got"),
        (["--model", "/no/model"], 1, "/no/model"),
        (["--model", "/no/model", "--package", "/no/package"], 1, "no op library for TensorFlow"),
    ],
)
def test_what_is_refused(program, options, status, message):
    done = run(program, *options)
    assert done.returncode == status, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize("exported", ["sequential"], indirect=True)
def test_an_unknown_signature(program, exported):
    options = ["--package", PACKAGE, "--signature", "train"]
    done = run(program, *requests(exported[0]), *options)
    assert done.returncode == 1
    assert "has no signature train" in done.stderr


def test_inputs_of_another_type(program, tmp_path):
    model = keras.Sequential([keras.Input((4,), dtype="int32"), keras.layers.Embedding(9, 2)])
    model.export(str(tmp_path / "model"), verbose=False)
    done = run(program, "--model", tmp_path / "model")
    assert done.returncode == 1
    assert "must be of float32, it is of type 3" in done.stderr
