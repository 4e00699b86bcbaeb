"""The CUDA kernels on the CPU: index, edge and barrier logic against the oracle, without a GPU.

Each run is a child process, so that an access outside an array, which the emulation turns into a
segmentation fault, is a failed test.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import check_persistent
import check_program
import check_ptxas
import jax_calls
import run

pytestmark = pytest.mark.xdist_group("emulated")

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tests" / "gpu"
JAX = ROOT / ".build" / "jax" / "bin" / "python"  # make test-gpu-emulated makes it
REPORTS = ROOT / ".build" / "ptxas"  # tools/build.py leaves them there

_REPORT = """\
ptxas info    : Compiling entry function '_Z6Kernelv' for 'sm_80'
ptxas info    : Function properties for _Z6Kernelv
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem, 416 bytes cmem[0]
"""


@pytest.fixture(scope="module")
def emulation(tmp_path_factory):
    """The engine's library and a stand-in for cuBLAS."""
    folder = tmp_path_factory.mktemp("emulation")
    library, cublas = folder / "engine.so", folder / "libcublas.so.12"
    run.build_emulation(library, cublas, jobs=2)
    return library, cublas


@pytest.mark.parametrize("check", run.CHECKS)
def test_kernels_in_the_emulation(emulation, check):
    library, cublas = emulation
    command = [sys.executable, GPU / check, "--library", library, "--cublas", cublas]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    said = done.stdout + done.stderr
    assert done.returncode >= 0, f"killed by a signal: an access outside an array?\n{said}"
    if check == "check_cudnn.py" and done.returncode == check_program.NOT_RUN:
        pytest.skip(done.stdout.strip())  # it compares with cuDNN's own numbers
    assert done.returncode == 0, said
    # A refusal hides an error of ours as well as a lack of room, so each kind is logged, once.
    refusals = len(check_persistent.REFUSALS) if check == "check_persistent.py" else None
    assert refusals in (None, done.stderr.count("CUDA refused a persistent kernel")), said


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """What check_ffi.py needs where there is no TensorFlow."""
    folder = tmp_path_factory.mktemp("ffi")
    command = [sys.executable, GPU / "check_ffi.py", "--prepare", folder]
    subprocess.run(command, check=True)
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < 16 * 2**20, "more than travels to a GPU beside the engine"
    return folder


@pytest.mark.parametrize("platform", ["cpu", "emulated"])
def test_handlers_in_jax(emulation, prepared, platform):
    options = ["--folder", prepared, "--platform", platform]
    if platform == "emulated":
        if not jax_calls.has_cuda(jax_calls.PACKAGE):
            pytest.skip("not run: this build has no kernels for GPUs")
        options += ["--library", emulation[0], "--cublas", emulation[1]]
    command = [JAX if JAX.exists() else sys.executable, GPU / "check_ffi.py", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode == check_program.NOT_RUN:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def test_kernels_on_the_gpu():
    """The same checks, and compute-sanitizer's, where there is a GPU and nvcc."""
    command = [sys.executable, GPU / "run.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    if done.stdout.startswith("not run:"):
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def self_test(tmp_path_factory):
    program = tmp_path_factory.mktemp("emulation") / "self_test"
    names = ("self_test.cc", "device.cc", "threads.cc", "memory.cc", "streams.cc")
    sources = [GPU / "emulation" / name for name in names]
    compiler = os.environ.get("CXX", "g++")
    options = ["-std=c++17", "-O1", "-Wno-unknown-pragmas"]
    includes = ["-I", ROOT, "-isystem", GPU / "emulation"]
    subprocess.run([compiler, *options, *includes, *sources, "-o", program], check=True)
    return program


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        ("barrier", "agree"),
        ("missing barrier", "differ"),
        ("inside", "no error"),
        ("past the end", None),
        ("before the start", "unspecified launch failure"),
        ("missed barrier", "unspecified launch failure"),
        ("two barriers", "unspecified launch failure"),
        ("after a failure", "unspecified launch failure"),
        ("error left", "invalid configuration argument"),
        ("error taken", "no error"),
        ("empty grid", "invalid configuration argument"),
        ("default stream", "invalid resource handle"),
        ("grid barrier", "agree"),
        ("missing grid barrier", "differ"),
        ("split barrier", "agree"),
        ("store after arrival", "differ"),
        ("load before wait", "differ"),
        ("parted grid", "unspecified launch failure"),
        ("grid and block", "unspecified launch failure"),
        ("not cooperative", "unspecified launch failure"),
        ("too many blocks", "too many blocks in cooperative launch"),
        ("shared unasked", "invalid argument"),
        ("shared asked", "no error"),
        ("past the shared", None),
        ("mma", "agree"),
        ("parted warp", "unspecified launch failure"),
        ("warp and block", "unspecified launch failure"),
        ("mma and shuffle", "unspecified launch failure"),
    ],
)
def test_emulation_finds(self_test, mode, outcome):
    """outcome: what it prints; None if a signal ended it."""
    done = subprocess.run([self_test, mode], capture_output=True, text=True, check=False)
    if outcome is None:
        assert done.returncode < 0, done.stdout
    else:
        assert (done.returncode, done.stdout.strip()) == (0, outcome), done.stderr


def test_plan_of_persistent_kernels(tmp_path):
    program = tmp_path / "plan_test"
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [*command, "-I", ROOT, GPU / "persistent_plan_test.cc", "-o", program], check=True
    )
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n")


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, None),
        ({"stores": 8, "loads": 8}, "16 bytes of stack frame and spills"),
        ({"stack": 24}, "24 bytes of stack frame and spills"),
        ({"registers": 257}, "257 registers"),
        ({"shared": 50000}, "50000 bytes of shared memory"),
    ],
)
def test_ptxas_report_is_read(changes, wrong):
    fields = {"stack": 0, "stores": 0, "loads": 0, "registers": 64, "shared": 1024, **changes}
    found = check_ptxas.check(_REPORT.format(**fields))
    assert len(found) == (wrong is not None), found
    assert wrong is None or wrong in found[0]


def test_ptxas_report_without_kernels_is_refused():
    assert check_ptxas.check("ptxas info    : 0 bytes gmem\n") == ["no kernel in the report"]


def test_no_kernel_of_the_build_spills():
    reports = sorted(REPORTS.glob("*.ptxas.txt"))
    if not reports:
        pytest.skip("not run: this build has no CUDA")
    assert check_ptxas.check("\n".join(path.read_text() for path in reports)) == []
