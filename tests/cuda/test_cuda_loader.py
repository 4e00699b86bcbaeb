"""Which CUDA engine the ops choose, by the driver: stand-ins for libcuda.so.1 and for engines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from helpers.children import ROOT, assert_ok, environment, run_python

PACKAGE = ROOT / "tf_blockrnn"
REPORT = """
import tf_blockrnn, tensorflow as tf
from tensorflow.python.framework import kernels
info = tf_blockrnn.build_info()
found = kernels.get_registered_kernels_for_op("BlockRNN>GRUBlockCell").kernel
print("missing:", info["cuda"]["missing"])
print("devices:", *sorted({kernel.device_type for kernel in found}))
x = tf.ones([1, 2])
with tf.device("/GPU:0"):  # placed softly where there is none
    cell = tf_blockrnn.raw_ops.GRUBlockCell(
        x=x, h_prev=x, w_ru=tf.ones([4, 4]), w_c=tf.ones([4, 2]), b_ru=x[0, :1] * tf.ones([4]),
        b_c=tf.ones([2]))
print("device:", cell.h.device.rpartition(":")[0][-3:])
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package without a CUDA engine."""
    ignored = shutil.ignore_patterns("__pycache__", "libblockrnn_cuda*.so")
    copy = shutil.copytree(PACKAGE, tmp_path / "tf_blockrnn", ignore=ignored)
    facts = json.loads((copy / "_build_info.json").read_text())
    facts["cuda"] = {"version": "13.0.1", "architectures": ["sm_80"], "missing": ""}
    (copy / "_build_info.json").write_text(json.dumps(facts))
    return copy


def driver(folder, version: int | None):
    """Writes a driver that runs that CUDA; None: one that cannot say."""
    source = folder / "driver.c"
    body = "return 3;" if version is None else f"*version = {version}; return 0;"
    source.write_text(f"int cuDriverGetVersion(int* version) {{ (void)version; {body} }}\n")
    command = ["gcc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)]
    subprocess.run(command, check=True)


def report(package, **variables) -> tuple[dict[str, str], str]:
    child = run_python(
        ["-c", REPORT],
        fresh=True,
        cwd=package.parent,
        TF_CPP_MIN_LOG_LEVEL="1",
        LD_LIBRARY_PATH=os.pathsep.join(
            [str(package.parent), environment().get("LD_LIBRARY_PATH", "")]
        ),
        **variables,
    )
    lines = assert_ok(child, "import").splitlines()
    return dict(line.split(":", 1) for line in lines), child.stderr


def test_a_driver_that_is_too_old_leaves_the_ops_on_the_cpu(package):
    driver(package.parent, 12080)
    for major in (13, 14):
        (package / f"libblockrnn_cuda{major}.so").touch()
    found, log = report(package)
    problem = (
        "the GPU's driver runs CUDA 12.8, but the CUDA engine needs a driver for CUDA 13 or newer"
    )
    assert found == {"missing": f" {problem}", "devices": " CPU", "device": " CPU"}
    assert log.count(f"tf_blockrnn: {problem}; the ops run on the CPU") == 1


@pytest.mark.parametrize("version", [13000, None])
def test_a_driver_that_fits(package, version, tfb):
    """The kernels are there; the engine, which is no library here, is not opened."""
    if not tfb.build_info()["cuda"]["version"]:
        pytest.skip("not run: this build has no CUDA")
    driver(package.parent, version)
    for name in ("cuda13", "cuda99", "cuda", "cudax", "cuda1234"):
        (package / f"libblockrnn_{name}.so").touch()
    found, log = report(package)
    assert found == {"missing": " ", "devices": " CPU GPU", "device": " CPU"}
    assert "tf_blockrnn" not in log


def test_no_driver_and_no_engine(package):
    found, log = report(package)
    assert found["missing"] == f" no CUDA engine lies in {package}"
    assert found["devices"] == " CPU"
    assert "tf_blockrnn" not in log


def test_an_engine_that_cannot_be_opened_says_so(package):
    (package / "libblockrnn_cuda13.so").write_bytes(b"no library")
    code = "from tf_blockrnn import _loader; print(_loader.find_cublas())"
    found = assert_ok(run_python(["-c", code], cwd=package.parent), "cuBLAS")
    assert "cannot open an engine" in found and "libblockrnn_cuda13.so" in found


def test_an_engine_of_another_version_is_refused(package):
    source = package.parent / "engine.c"
    source.write_text(
        "static int version = 999;\nint* blockrnn_cuda_engine(void) { return &version; }\n"
    )
    library = package / "libblockrnn_cuda13.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    code = "from tf_blockrnn import _loader; print(_loader.find_cublas())"
    found = assert_ok(run_python(["-c", code], cwd=package.parent), "cuBLAS")
    assert "has engine version 999, expected" in found


def test_the_engine_that_was_built_opens(tfb):
    """It needs neither a driver nor a GPU for that."""
    if not tfb.build_info()["cuda"]["version"]:
        pytest.skip("not run: this build has no CUDA")
    path, problem = tfb._loader.find_cublas()
    assert path or problem == "no libcublas.so.12 or libcublas.so.13"
