"""`python -m tf_blockrnn` where the package cannot be imported, as its doctor is for."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest
from helpers.children import ROOT, assert_ok, environment


@pytest.fixture
def hollow_copy(tmp_path):
    """A copy of the package whose libraries cannot be loaded; quick to make."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__")
    copy = shutil.copytree(ROOT / "tf_blockrnn", tmp_path / "tf_blockrnn", ignore=ignored)
    (copy / "libblockrnn_ops.so").touch()
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


@pytest.mark.parametrize("missing", ["", "libblockrnn_ops.so", "_build_info.json"])
def test_doctor_tells_what_is_wrong_with_the_libraries(hollow_copy, missing):
    info = json.loads((hollow_copy / "_build_info.json").read_text())
    if missing:
        (hollow_copy / missing).unlink()
    tensorflow = "__version__ = '2.99.0'\n"
    result = run_beside(hollow_copy, tensorflow, "-m", "tf_blockrnn", "doctor")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert sys.version.split()[0] in result.stdout
    no_info = missing == "_build_info.json"
    built = "nothing is built" if no_info else f"built for {info['tensorflow']}"
    assert f"2.99.0, {built}" in result.stdout
    assert "3.99.1, " in result.stdout
    said = re.search(r"^import +FAILED: ImportError: (.*)", result.stdout, flags=re.MULTILINE)
    assert said is not None
    assert ("no built libraries" if missing else "but this is TensorFlow 2.99.0") in said[1]
    assert f"make build PYTHON={sys.executable}" in said[1]


@pytest.mark.parametrize(
    "error", ["ModuleNotFoundError(\"No module named 'tensorflow'\")", "TypeError('descriptors')"]
)
def test_doctor_tells_that_tensorflow_cannot_be_imported(hollow_copy, error):
    result = run_beside(hollow_copy, f"raise {error}\n", "-m", "tf_blockrnn", "doctor")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    said = re.escape(error.split("(")[0])
    assert re.search(rf"^TensorFlow +FAILED: {said}: .*, built for", result.stdout, re.MULTILINE)
    assert re.search(rf"^import +FAILED: {said}: ", result.stdout, re.MULTILINE)


def test_other_verbs_without_libraries(hollow_copy):
    (hollow_copy / "libblockrnn_ops.so").unlink()
    tensorflow = "__version__ = '2.99.0'\n"
    result = run_beside(hollow_copy, tensorflow, "-m", "tf_blockrnn", "-h")
    assert "doctor" in assert_ok(result, "-h")
    result = run_beside(hollow_copy, tensorflow, "-m", "tf_blockrnn", "demo")
    assert result.returncode == 1
    assert result.stderr.startswith("FAILED: ImportError: tf_blockrnn has no built libraries")
    assert len(result.stderr.splitlines()) == 1


def test_only_the_command_hides_that_libraries_are_missing(hollow_copy):
    """Not a module of somebody else's that is run with -m and whose package imports this one."""
    (hollow_copy / "libblockrnn_ops.so").unlink()
    theirs = hollow_copy.parent / "theirs"
    theirs.mkdir()
    (theirs / "__init__.py").write_text("import tf_blockrnn\n")
    (theirs / "__main__.py").write_text("print('came this far')\n")
    tensorflow = "__version__ = '2.99.0'\n"
    for arguments in (["-c", "import tf_blockrnn", "tf_blockrnn"], ["-m", "theirs", "tf_blockrnn"]):
        result = run_beside(hollow_copy, tensorflow, *arguments)
        assert result.returncode == 1
        assert result.stdout == ""
        assert result.stderr.splitlines()[-1].startswith("ImportError: tf_blockrnn has no built")
