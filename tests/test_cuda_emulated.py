"""The CUDA kernels on the CPU: index, edge and barrier logic against the oracle, without a GPU.

Each run is a child process, so that an access outside an array, which the emulation turns into a
segmentation fault, is a failed test.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPU = ROOT / "tests" / "gpu"
REPORTS = ROOT / ".build" / "ptxas"  # tools/build.py leaves them there

_REPORT = """\
ptxas info    : Compiling entry function '_Z6Kernelv' for 'sm_80'
ptxas info    : Function properties for _Z6Kernelv
    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem, 416 bytes cmem[0]
"""


def _module(name):
    """One of tests/gpu."""
    spec = importlib.util.spec_from_file_location(name, GPU / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _check_ptxas():
    return _module("check_ptxas")


def test_kernels_in_the_emulation():
    command = [sys.executable, GPU / "run.py", "--emulate", "--jobs", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("ok: the CUDA engine in the emulation on the CPU\n")


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
    options = ["-std=c++17", "-O1", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas"]
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
        ("empty grid", "invalid configuration argument"),
        ("default stream", "invalid resource handle"),
        ("grid barrier", "agree"),
        ("missing grid barrier", "differ"),
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
    """outcome: what it says; None for a death by signal."""
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


def test_no_gpu_is_said():
    """Without a GPU the harness says so and succeeds; asked for one, it fails."""
    command = [sys.executable, "-c", "import run; run.count_gpus = lambda: 0; run.main()"]
    for options, code in (([], 0), (["--require-gpu"], 1)):
        done = subprocess.run(
            [*command, *options], cwd=GPU, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (code, "not run: no GPU\n"), done.stderr


# A stand-in for GPU, compiler and sanitizer. The first argument is a source that may change, the
# second "sanitizer" or "none"; said is what is left of the checks' commands.
_PARTS = """
import pathlib, subprocess, sys
import run

source, tool = pathlib.Path(sys.argv[1]), sys.argv[2]

def build(compiler, sources, library, jobs):
    print("built")
    library.write_text("built")
    return {s: "spills" if "spills" in source.read_text() else "fine" for s in sources}

def report(said):
    if "spills" in said:
        sys.exit("spills")

def run_one(command, **options):
    words = [pathlib.Path(word).name for word in map(str, command)]
    kept = [w for w in words if w.startswith("check") or w in (*run.SANITIZERS, "--small")]
    print(*kept)
    return subprocess.CompletedProcess(command, 0)

run.count_gpus, run.architecture = lambda: 1, lambda: 90
run.find_tool = lambda name: {"nvcc": "nvcc", "compute-sanitizer": tool}[name]
tool = None if tool == "none" else tool
run.origin = lambda compiler: source.read_text()
run.build, run.report_ptxas, run.run = build, report, run_one
run.main(sys.argv[3:])
"""
_OK = "ok: the CUDA engine on the GPU\n"


@pytest.fixture
def parts(tmp_path):
    """run.py with stand-ins and a library that it keeps: (code, what it says)."""
    source = tmp_path / "source"
    source.write_text("first")

    def run(*options, tool="sanitizer", text=None):
        if text is not None:
            source.write_text(text)
        command = [sys.executable, "-c", _PARTS, source, tool, *options]
        kept = ["--library", tmp_path / "new" / "engine.so"]
        done = subprocess.run(
            [*command, *kept], cwd=GPU, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_library_is_built_once_for_the_same_sources(parts):
    one = ("--checks", "check.py", "--sanitizers")
    assert parts(*one)[:2] == (0, f"built\ncheck.py\n{_OK}")
    assert parts(*one)[:2] == (0, f"check.py\n{_OK}")
    assert parts(*one, text="second")[:2] == (0, f"built\ncheck.py\n{_OK}")
    # Kept though its kernels spill, and still refused.
    assert parts(*one, text="spills")[:2] == (1, "built\n")
    assert parts(*one)[:2] == (1, "")


def test_the_checks_of_a_gpu_come_in_parts(parts):
    """What is named is run, with and without sanitizers."""
    two = ("--checks", "check.py", "check_cudnn.py")
    memcheck = "compute-sanitizer memcheck\nmemcheck check.py --small\n"
    plain = "check.py\ncheck_cudnn.py\n"
    code, said, _ = parts()
    assert code == 0 and said.count("check_stack.py\n") == 1
    assert said.count("check_stack.py --small\n") == 3
    assert parts(*two, "--sanitizers", "memcheck")[1] == plain + memcheck + _OK
    only = (*two, "--only-sanitizers")
    assert parts(*only, "--sanitizers", "memcheck")[1] == memcheck + _OK
    for nothing in (("--sanitizers",), ("--checks", "check_blas.py")):
        code, _, error = parts(*only, *nothing)
        assert code == 2 and "nothing to run" in error


def test_a_missing_sanitizer_is_said(parts):
    """And is a failure where the GPU's checks are required, unless none was asked for."""
    one = ("--checks", "check.py")
    missing = "not run: compute-sanitizer (not found)\n"
    assert parts(*one, tool="none")[:2] == (0, f"built\ncheck.py\n{missing}{_OK}")
    assert parts(*one, "--only-sanitizers", tool="none")[:2] == (0, missing)
    code, said, error = parts(*one, "--require-gpu", tool="none")
    assert (code, said) == (1, "") and "no compute-sanitizer" in error
    assert parts(*one, "--require-gpu", "--sanitizers", tool="none")[0] == 0


def test_the_origin_of_a_library_is_its_sources_and_compiler(tmp_path):
    """A changed header or option makes another one, a changed note does not."""
    code = "import pathlib, run, sys; run.ROOT = pathlib.Path(sys.argv[1]); "
    code += "print(run.origin(sys.argv[2:]))"
    for folder in ("cc/core", "tests/gpu", "bench/gpu"):
        (tmp_path / folder).mkdir(parents=True)

    def origin(*options):
        command = [sys.executable, "-c", code, tmp_path, sys.executable, *options]
        done = subprocess.run(command, cwd=GPU, capture_output=True, text=True, check=True)
        return done.stdout

    seen = [origin()]
    for number, name in enumerate(("cc/core/a.h", "tests/gpu/b.cuh", "bench/gpu/c.cu.cc")):
        (tmp_path / name).write_text("0")
        seen.append(origin())
        (tmp_path / name).write_text(f"{number + 1}")
        seen.append(origin())
    seen.append(origin("-O1"))
    assert len(set(seen)) == len(seen)
    (tmp_path / "tests/gpu/note.md").write_text("0")
    assert origin("-O1") == seen[-1]


def test_a_refused_persistent_kernel_is_told_under_a_sanitizer_alone(capsys):
    module = _module("device_engine")
    engine = module.Engine.__new__(module.Engine)
    engine.persistent_blocks, engine.sanitized = lambda: 3, True
    engine.expect_persistent(1, 2, "a call")
    assert capsys.readouterr().out == ""
    engine.expect_persistent(1, 4, "a call")
    assert capsys.readouterr().out.startswith("a call: 2 blocks of steps were persistent")
    engine.sanitized = False
    with pytest.raises(AssertionError, match="a call: 2 blocks"):
        engine.expect_persistent(1, 4, "a call")


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
    found = _check_ptxas().check(_REPORT.format(**fields))
    assert len(found) == (wrong is not None), found
    assert wrong is None or wrong in found[0]


def test_ptxas_report_without_kernels_is_refused():
    assert _check_ptxas().check("ptxas info    : 0 bytes gmem\n") == ["no kernel in the report"]


def test_no_kernel_of_the_build_spills():
    reports = sorted(REPORTS.glob("*.ptxas.txt"))
    if not reports:
        pytest.skip("not run: this build has no CUDA")
    assert _check_ptxas().check("\n".join(path.read_text() for path in reports)) == []
