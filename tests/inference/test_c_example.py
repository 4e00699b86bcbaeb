"""The C example compiles against the installed header and computes what a Python session does."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from helpers.children import ROOT, assert_ok, environment
from helpers.weight_stacks import Stack, random_weights

import tf_blockrnn
from tf_blockrnn.inference import Session

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("c")]

_PACKAGE = pathlib.Path(tf_blockrnn.__file__).parent
_EXAMPLE = ROOT / "examples" / "c_session"
_LIBRARY = [f"-L{_PACKAGE}", "-lblockrnn_inference", f"-Wl,-rpath,{_PACKAGE}"]
_FLAGS = ["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{_PACKAGE / 'include'}"]


def _compile(source: pathlib.Path, *options: str) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "there is no C compiler, which the build needs too"
    command = [compiler, *_FLAGS, str(source), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert_ok(done, "the compiler")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    made = tmp_path_factory.mktemp("c_session") / "session"
    _compile(_EXAMPLE / "session.c", "-std=c99", *_LIBRARY, "-o", str(made))
    return made


def _run(program, *arguments, **options):
    return subprocess.run(
        [program, *map(str, arguments)],
        **options,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _write(weights, folder):
    tf_blockrnn.weights.to_npz(weights, folder / "weights.npz")
    return subprocess.run(
        [sys.executable, _EXAMPLE / "write_weights.py", "weights.npz", "weights.bin"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "stack",
    [
        Stack("lstm", layers=2, inputs=5, units=9, proj=4, peepholes=True, cell_clip=0.5),
        Stack("gru", directions=2, inputs=5, units=9, reset_after=False, zoneout_h=0.25),
        Stack("rnn_relu", inputs=5, units=9, biases=("b_h",)),
        Stack("layer_norm_lstm", directions=2, inputs=5, units=9, norm_output_only=True),
        Stack("layer_norm_gru", layers=2, inputs=5, units=9),
        Stack("gru", inputs=5, units=9, activation="relu", hard_sigmoid=0.2),
    ],
    ids=lambda stack: stack.cell,
)
def test_bits_of_a_session_in_python(program, tmp_path, stack):
    weights = random_weights(stack)
    written = _write(weights, tmp_path)
    assert_ok(written, "write_weights.py")
    report = assert_ok(_run(program, tmp_path / "weights.bin", 20), "the program")
    printed = re.search(r"^last outputs:(.*)$", report, flags=re.MULTILINE)[1].split()
    time, inputs = np.arange(20)[:, None], np.arange(5)
    x = 0.25 * ((time + inputs) % 7 - 3)
    wanted, _ = Session(weights).run(x[None])
    np.testing.assert_array_equal(np.array(printed, np.float32), wanted[0, -1])
    assert re.search(r"20 steps in [0-9.]+ us", report)


def test_initial_states_are_not_dropped(tmp_path):
    weights = random_weights(Stack("gru", inputs=5, units=9))
    one = dataclasses.replace(weights.layers[0].forward, h0=np.ones(9, weights.dtype))
    layers = [tf_blockrnn.weights.LayerWeights(one)]
    written = _write(dataclasses.replace(weights, layers=layers), tmp_path)
    assert written.returncode and "these weights have initial states" in written.stderr


def test_a_corrupt_file_is_reported(program, tmp_path):
    with (tmp_path / "weights.bin").open("wb") as file:
        file.write(b"\x01" * 20)
    result = _run(program, tmp_path / "weights.bin", 20)
    assert result.returncode == 1 and "the file is corrupt" in result.stderr


_USE = """
#include <blockrnn.h>
blockrnn_direction direction = BLOCKRNN_DIRECTION_INIT;
blockrnn_layer layer = BLOCKRNN_LAYER_INIT;
blockrnn_model model = BLOCKRNN_MODEL_INIT;
blockrnn_sequences sequences = BLOCKRNN_SEQUENCES_INIT;
int main(void) { return blockrnn_api_version() != BLOCKRNN_API_VERSION; }
"""


@pytest.mark.parametrize(
    "suffix, standard", [(".c", "c99"), (".cc", "c++11"), (".cc", "c++17"), (".cc", "c++20")]
)
def test_the_header_alone(tmp_path, suffix, standard):
    source = (tmp_path / "use").with_suffix(suffix)
    source.write_text(_USE)
    _compile(source, f"-std={standard}", *_LIBRARY, "-o", str(tmp_path / "use"))
    assert_ok(_run(tmp_path / "use"), "the program")


# h is the sum of x and the state, exactly.
_RESETS = """
#include <blockrnn.h>
#include <stdio.h>
int main(void) {
  const float one = 1.0f, x[] = {1, 2, 3, 4, 5, 6, 7, 8}, state[] = {10, 20, 30, 40};
  const int64_t lengths[] = {4, 3};
  const uint8_t resets[] = {0, 0, 1, 0, 1, 0, 0, 1};
  float new_state[4], y[16];
  blockrnn_direction direction = BLOCKRNN_DIRECTION_INIT;
  blockrnn_layer layer = BLOCKRNN_LAYER_INIT;
  blockrnn_model model = BLOCKRNN_MODEL_INIT;
  blockrnn_sequences call = BLOCKRNN_SEQUENCES_INIT;
  blockrnn_session* session;
  direction.w_x = direction.w_h = &one;
  layer.inputs = layer.units = layer.outputs = 1;
  layer.forward = layer.backward = &direction;
  model.cell = BLOCKRNN_RNN_RELU;
  model.num_layers = 1;
  model.layers = &layer;
  call.x = x;
  call.batch = 2;
  call.steps = 4;
  call.lengths = lengths;
  call.resets = resets;
  call.state = state;
  call.new_state = new_state;
  call.y = y;
  if (blockrnn_session_create(&model, BLOCKRNN_FLOAT32, 1, &session) != BLOCKRNN_OK ||
      blockrnn_session_run_sequences(session, &call) != BLOCKRNN_OK) {
    fputs(blockrnn_last_error(), stderr);
    return 1;
  }
  for (int n = 0; n < 16; ++n) printf("%g ", (double)y[n]);
  for (int n = 0; n < 4; ++n) printf("%g ", (double)new_state[n]);
  blockrnn_session_destroy(session);
  return 0;
}
"""


@pytest.mark.parametrize("suffix, standard", [(".c", "c99"), (".cc", "c++11")])
def test_resets(tmp_path, suffix, standard):
    source = (tmp_path / "resets").with_suffix(suffix)
    source.write_text(_RESETS)
    _compile(source, f"-std={standard}", *_LIBRARY, "-o", str(tmp_path / "resets"))
    printed = assert_ok(_run(tmp_path / "resets"), "the program").split()
    # In pairs (forward, backward) of each step; forward states of both rows, then backward ones.
    row = [11, 3, 13, 2, 3, 37, 7, 34]
    begins_anew = [5, 58, 11, 53, 18, 47, 0, 0]
    assert list(map(float, printed)) == [*row, *begins_anew, 7, 18, 3, 58]


# The library's sources but the engines, which are opened beside it.
_SOURCES = ("cc/inference/*.cc", "cc/loader/cpu_engine_loader.cc", "cc/loader/open_engine.cc")


def test_a_program_runs_with_a_later_library(program, tmp_path):
    """Each struct of the library has one more member than the program's."""
    header = (ROOT / "cc/inference/blockrnn.h").read_text(encoding="utf-8")
    later, count = re.subn(r"^} (blockrnn_\w+);", r"int64_t later;\n} \1;", header, flags=re.M)
    assert count == 4
    later, count = re.subn("(#define BLOCKRNN_API_VERSION) 2$", r"\1 3", later, flags=re.M)
    assert count == 1
    (tmp_path / "later.h").write_text(later)
    # The engines that are built have that version.
    subprocess.run([ROOT / "tools/interface_hash.sh", ROOT, tmp_path / "include"], check=True)
    sources = [path for pattern in _SOURCES for path in sorted(ROOT.glob(pattern))]
    (tmp_path / "library.cc").write_text("".join(f'#include "{path}"\n' for path in sources))
    # Included first, it takes the place of the header.
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-pthread", "-include", "later.h"]
    command += [
        "-iquote",
        str(ROOT),
        "-iquote",
        "include",
        "-isystem",
        tf.sysconfig.get_include(),
        "library.cc",
    ]
    command += ["-o", "libblockrnn_inference.so", "-Wl,-soname,libblockrnn_inference.so"]
    command += ["-DEIGEN_MAX_ALIGN_BYTES=64"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert_ok(done, "the compiler")
    for engine in _PACKAGE.glob("libblockrnn_cpu_*.so"):
        (tmp_path / engine.name).symlink_to(engine)
    library = environment(LD_PRELOAD=str(tmp_path / "libblockrnn_inference.so"))
    (tmp_path / "use.c").write_text(_USE)
    _compile(tmp_path / "use.c", *_LIBRARY, "-o", str(tmp_path / "use"))
    assert [_run(tmp_path / "use", env=env).returncode for env in (environment(), library)] == [
        0,
        1,
    ]
    stack = Stack("gru", layers=2, directions=2, inputs=5, units=9)
    assert_ok(_write(random_weights(stack), tmp_path), "write_weights.py")
    texts = (
        assert_ok(_run(program, tmp_path / "weights.bin", 20, env=env), "the program")
        for env in (environment(), library)
    )
    one, other = (re.search(r"^last outputs:.*$", text, flags=re.MULTILINE)[0] for text in texts)
    assert one == other
