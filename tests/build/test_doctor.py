"""`python -m tf_blockrnn`: what the doctor finds; the reason where the ops cannot be loaded."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers.children import ROOT, assert_ok, environment, run_python

from tf_blockrnn import weights
from tf_blockrnn._version import VERSION


def test_doctor_is_content(tfb):
    report = assert_ok(run_python(["-m", "tf_blockrnn", "doctor"]), "doctor")
    info = tfb.build_info()
    for fact in (info["version"], info["tensorflow"], info["compiler"], info["cpu_isa"]):
        assert fact in report
    assert re.search(rf"^built for +{', '.join(info['cpu_isas_built'])}$", report, re.MULTILINE)
    assert re.search(rf"^processor runs +{', '.join(info['cpu_isas_supported'])}$", report, re.M)
    assert (info["cuda"]["missing"] or ", ".join(info["cuda"]["architectures"])) in report
    assert re.search(r"^GRUBlockCell +ok", report, flags=re.MULTILINE)


def test_doctor_reports_an_engine_that_cannot_be_opened():
    result = run_python(["-m", "tf_blockrnn", "doctor"], TF_BLOCKRNN_CPU_ISA="x86-64-v0")
    assert result.returncode == 1
    assert "no CPU engine can be opened" in result.stdout
    assert re.search(r"^GRUBlockCell +FAILED.*x86-64-v0", result.stdout, flags=re.MULTILINE)


def test_doctor_sees_wrong_numbers():
    code = (
        "import sys; from tf_blockrnn import __main__, raw_ops; right = raw_ops.GRUBlockCell\n"
        "def wrong(**arguments):\n"
        "    result = right(**arguments)\n"
        "    return result._replace(h=result.h + 0.001)\n"
        "raw_ops.GRUBlockCell = wrong\n"
        "sys.exit(__main__.main(['doctor']))\n"
    )
    result = run_python(["-c", code])
    assert result.returncode == 1
    assert re.search(r"^GRUBlockCell +WRONG", result.stdout, flags=re.MULTILINE)


@pytest.fixture
def hollow_copy(tmp_path):
    """A copy of the package whose libraries cannot be loaded; quick to make."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    copy = shutil.copytree(ROOT / "tf_blockrnn", tmp_path / "tf_blockrnn", ignore=ignored)
    (copy / "libblockrnn_ops_tf2.99.so").touch()
    return copy


def run_beside(hollow_copy, tensorflow, *arguments):
    """Runs Python with the copy and with stand-ins for TensorFlow and Keras, imported at once."""
    (hollow_copy.parent / "tensorflow.py").write_text(tensorflow)
    (hollow_copy.parent / "keras.py").write_text("__version__ = '3.99.1'\n")
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment(PYTHONPATH=str(hollow_copy.parent)),
        cwd=hollow_copy.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def reason(result):
    """The one line that the command prints; no traceback, and nothing on stdout."""
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("missing", ["", "libblockrnn_ops_tf2.99.so", "_build_info.json"])
def test_the_command_reports_what_is_wrong_with_the_libraries(hollow_copy, missing):
    info = json.loads((hollow_copy / "_build_info.json").read_text())
    if missing:
        (hollow_copy / missing).unlink()
    result = run_beside(hollow_copy, "__version__ = '2.99.0'\n", "-m", "tf_blockrnn", "doctor")
    line = reason(result)
    if missing:
        assert f"doctor: ImportError: tf_blockrnn has no built libraries in {hollow_copy}" in line
    else:
        built = f"built for TensorFlow {info['tensorflow'][0]}, but this is TensorFlow 2.99.0"
        assert f"doctor: ImportError: tf_blockrnn was {built}" in line
    assert f"make build PYTHON={sys.executable}" in line


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError(\"No module named 'tensorflow'\")", "TypeError('descriptors')"]
)
def test_the_command_reports_that_tensorflow_cannot_be_imported(hollow_copy, error):
    result = run_beside(hollow_copy, f"raise {error}\n", "-m", "tf_blockrnn", "doctor")
    assert f"tf_blockrnn cannot import TensorFlow: {error.split('(')[0]}: " in reason(result)


# Arguments, which no verb is run for; the exit status and what is shown.
USAGE = {
    "--help": (0, "doctor   reports"),
    "--version": (0, f"tf_blockrnn {VERSION}\n"),
    "doctor --help": (0, "usage: python -m tf_blockrnn doctor"),
    "convert -h": (0, "--to {"),
    "": (2, "the following arguments are required: VERB\n"),
    "frobnicate": (2, "invalid choice: 'frobnicate' (choose from "),
    "doctor --frobnicate": (2, "unrecognized arguments: --frobnicate"),
    "doctor here": (2, "unrecognized arguments: here"),
    "convert a.npz": (2, "the following arguments are required: OUT"),
}


def test_make_doctor_builds_nothing():
    """Its steps are printed here; with a Python that is missing it says how to name one."""
    make = ["make", "doctor", "--no-print-directory"]
    options = {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
    steps = subprocess.run([*make, "--dry-run"], **options).stdout.splitlines()
    assert steps[-1].endswith("-m tf_blockrnn doctor")
    assert not any("build.py" in step or "make_venv" in step for step in steps)
    result = subprocess.run([*make, "PYTHON=/none/python"], **options)
    assert "there is no /none/python: " in result.stderr and result.returncode == 2


def test_the_command_needs_the_libraries_only_for_what_uses_them(hollow_copy):
    broken = "raise TypeError('broken')\n"
    for line, (status, words) in USAGE.items():
        result = run_beside(hollow_copy, broken, "-m", "tf_blockrnn", *line.split())
        shown, other = (result.stderr, result.stdout)[:: -1 if status == 0 else 1]
        assert (result.returncode, other) == (status, ""), line
        assert words in shown and shown.startswith(("usage: ", words)), line
    one = weights.DirectionWeights(np.ones([3, 5, 4], "f4"), np.ones([3, 4, 4], "f4"))
    gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
    weights.to_npz(gru, hollow_copy.parent / "gru.npz")
    command = ["-m", "tf_blockrnn", "convert", "gru.npz"]
    result = run_beside(hollow_copy, broken, *command, "copy.npz")
    assert result.returncode == 0 and result.stderr == ""
    assert weights.from_npz(hollow_copy.parent / "copy.npz") == gru
    result = run_beside(hollow_copy, broken, *command, "gru.npy")
    assert reason(result).startswith("convert: ImportError: tf_blockrnn cannot import TensorFlow: ")


@pytest.mark.parametrize(
    "tensorflow, code",
    [
        ("__version__ = '2.99.0'\n", "import tensorflow, tf_blockrnn"),
        ("raise TypeError('broken')\n", "from tf_blockrnn import lstm"),
    ],
)
def test_an_import_fails_for_everyone(hollow_copy, tensorflow, code):
    """In a program, and in a package that is run with -m and imports this one."""
    theirs = hollow_copy.parent / "theirs"
    theirs.mkdir()
    (theirs / "__init__.py").write_text(f"{code}\n")
    (theirs / "__main__.py").write_text("print('came this far')\n")
    for arguments in (["-c", code, "tf_blockrnn"], ["-m", "theirs", "tf_blockrnn"]):
        result = run_beside(hollow_copy, tensorflow, *arguments)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.splitlines()[-1].startswith("ImportError: tf_blockrnn ")
