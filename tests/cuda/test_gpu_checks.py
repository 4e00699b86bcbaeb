"""How tests/gpu/run.py runs its checks, without a GPU: what is run, and what is reported."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import check_persistent
import check_program
import device_engine
import run
import runner

GPU = runner.HERE


@pytest.mark.parametrize("shim", run.GPU_SHIMS, ids=lambda path: path.name)
def test_shims_compile_for_a_gpu(tmp_path, shim):
    """The package's build compiles the engine alone; a warning is an error here, too.

    To PTX that is not optimized, in an eighth of the time.
    """
    nvcc = run.find_nvcc()
    if nvcc is None:
        pytest.skip("not run: no nvcc")
    command = run.nvcc_command(nvcc, [run.PTX], strict=True)
    command = [option.replace("code=sm_", "code=compute_") for option in command]
    command += ["-Xcicc=-O0", "-c", shim, "-o", tmp_path / "shim.o"]
    done = run.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shim.o").stat().st_size > 0


@pytest.mark.parametrize("architectures", [(75,), (80,), (75, 80)])
def test_a_library_for_old_gpus_alone_multiplies_no_tf32(tmp_path, architectures):
    """A newer GPU would run the PTX of sm_75, in which the instruction is NaN."""
    nvcc = run.find_nvcc()
    if nvcc is None:
        pytest.skip("not run: no nvcc")
    source = tmp_path / "has.cu.cc"
    has = "" if max(architectures) >= 80 else "!"
    source.write_text(
        '#include "cc/kernels/cuda/step/mma.cuh"\n'
        f'static_assert({has}blockrnn::cuda::kHasTf32, "as compiled");\n'
    )
    command = run.nvcc_command(nvcc, architectures, strict=True)
    command += ["-c", source, "-o", tmp_path / "has.o"]
    done = run.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_gpu_is_said():
    """Without a GPU the harness reports it and succeeds; if a GPU is required, it fails."""
    command = [sys.executable, "-c", "import run; run.count_gpus = lambda: 0; run.main()"]
    for options, code in (([], 0), (["--require-gpu"], 1)):
        done = subprocess.run(
            [*command, *options], cwd=GPU, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (code, "not run: no GPU\n"), done.stderr


# A stand-in for GPU, compiler and sanitizer. The first argument is a source that may change, the
# second "sanitizer" or "none", the third the codes of checks that do not pass (_ENDS). It prints
# the essential words of the checks' commands.
_PARTS = """
import json, pathlib, sys
import run, runner

source, tool, codes = pathlib.Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])

def build(compiler, sources, library, jobs):
    print("built")
    library.write_text("built")
    return {s: "spills" if "spills" in source.read_text() else "fine" for s in sources}

def call(command, timeout, captured):
    words = [pathlib.Path(word).name for word in map(str, command)]
    options = (*run.SANITIZERS, "--small", "--unfilled")
    shown = [w for w in words if w.startswith("check") or w in options]
    print(*shown)
    return next((codes[w] for w in shown if w in codes), 0), ""

run.count_gpus, run.architecture = lambda: 1, lambda: 90
run.find_tool = lambda name: {"nvcc": "nvcc", "compute-sanitizer": tool}[name]
tool = None if tool == "none" else tool
run.origin = lambda compiler: source.read_text()
run.report_ptxas = lambda report: "spills" if "spills" in report else ""
run.build, runner.call = build, call
run.main(sys.argv[4:])
"""
_OK = "ok: the CUDA engine on the GPU\n"


@pytest.fixture
def parts(tmp_path):
    """run.py with stand-ins and a library that it stores: (code, standard output and error)."""
    source = tmp_path / "source"
    source.write_text("first")

    def run(*options, tool="sanitizer", text=None, codes=None):
        if text is not None:
            source.write_text(text)
        command = [sys.executable, "-c", _PARTS, source, tool, json.dumps(codes or {}), *options]
        library = ["--library", tmp_path / "new" / "engine.so"]
        done = subprocess.run(
            [*command, *library], cwd=GPU, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_a_library_is_built_once_for_the_same_sources(parts):
    one = ("--checks", "check.py", "--sanitizers")
    assert parts(*one)[:2] == (0, f"built\ncheck.py\n{_OK}")
    assert parts(*one)[:2] == (0, f"check.py\n{_OK}")
    assert parts(*one, text="second")[:2] == (0, f"built\ncheck.py\n{_OK}")
    # Stored although its kernels spill, and still refused.
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
    assert said.count("\ninitcheck check_stack.py --small --unfilled\n") == 1
    assert parts(*two, "--sanitizers", "memcheck")[1] == plain + memcheck + _OK
    only = (*two, "--only-sanitizers")
    assert parts(*only, "--sanitizers", "memcheck")[1] == memcheck + _OK
    for nothing in (("--sanitizers",), ("--checks", "check_blas.py")):
        code, _, error = parts(*only, *nothing)
        assert code == 2 and "nothing to run" in error


def test_a_missing_sanitizer_is_said(parts):
    """And is a failure where the GPU's checks are required, unless none was asked for."""
    one = ("--checks", "check.py")
    where = "not in CUDA_HOME, PATH or /usr/local/cuda\n"
    missing = f"compute-sanitizer not run: {where}"
    assert parts(*one, tool="none")[:2] == (0, f"{missing}built\ncheck.py\n{_OK}")
    assert parts(*one, "--only-sanitizers", tool="none")[:2] == (0, missing)
    required = (*one, "--require-gpu")
    assert parts(*required, tool="none") == (1, "", f"compute-sanitizer failed: {where}")
    assert parts(*required, "--sanitizers", tool="none")[0] == 0
    code, said, _ = parts(*required, "--keep-going", tool="none")
    assert code == 1 and said.endswith("check.py\npassed: check.py\nfailed: compute-sanitizer\n")


# How checks end: the exit code, None for one that runs out of time.
_ENDS = {
    "check.py": 1,
    "check_blas.py": check_program.NOT_RUN,
    "check_tensor.py": None,
    "check_stack.py": -11,
}
_ALL_RUN = """\
ptxas failed: spills
check.py
check.py failed: exit code 1
check_blas.py
check_tensor.py
check_tensor.py timed out: after 60 s
check_stack.py
check_stack.py failed: killed by signal 11: an access outside an array?
check_persistent.py
compute-sanitizer memcheck
memcheck check.py --small
memcheck check.py failed: exit code 1
memcheck check_tensor.py --small
memcheck check_tensor.py timed out: after 60 s
memcheck check_stack.py --small
memcheck check_stack.py failed: killed by signal 11: an access outside an array?
memcheck check_persistent.py --small
passed: check_persistent.py, memcheck check_persistent.py
failed: ptxas, check.py, check_stack.py, memcheck check.py, memcheck check_stack.py
timed out: check_tensor.py, memcheck check_tensor.py
not run: check_blas.py
"""


def test_the_emulation_runs_every_check(monkeypatch, capsys):
    """Its library is built once, and each program gets the path of the stand-in for cuBLAS."""
    built, called = [], []

    def build(library, cublas, jobs):
        built.append((library.parent == cublas.parent, jobs))

    def call(command, timeout, captured):
        called.append([pathlib.Path(word).name for word in map(str, command)])
        return 0, ""

    monkeypatch.setattr(run, "build_emulation", build)
    monkeypatch.setattr(runner, "call", call)
    run.main(["--emulate", "--jobs", "1"])
    assert built == [(True, 1)]
    options = ["--library", "engine.so", "--emulated", "--cublas", "libcublas.so.12"]
    assert [words[1:] for words in called] == [[check, *options] for check in run.CHECKS]
    assert capsys.readouterr().out == "ok: the CUDA engine in the emulation on the CPU\n"


def test_a_failure_ends_the_run_unless_it_is_to_go_on(parts):
    """Then all is run, with sanitizers too, and the last lines tell of all."""
    named = ("--checks", *_ENDS, "check_persistent.py", "--sanitizers", "memcheck")
    options = ("--timeout", "60", *named)
    code, said, error = parts(*options, codes=_ENDS)
    assert (code, said, error) == (1, "built\ncheck.py\n", "check.py failed: exit code 1\n")
    assert parts(*options, text="spills")[1:] == ("built\n", "ptxas failed: spills\n")
    assert parts(*options, "--keep-going", codes=_ENDS)[:2] == (1, _ALL_RUN)
    # What spills alone is enough, and nothing that is not run.
    passing = ("--checks", "check_persistent.py", "--sanitizers", "--keep-going")
    assert parts(*passing)[0] == 1
    summary = "passed: check_persistent.py\n"
    assert parts(*passing, text="fine")[:2] == (0, f"built\ncheck_persistent.py\n{summary}{_OK}")
    nothing = ("--checks", "check_blas.py", "--sanitizers")
    assert parts(*nothing, codes=_ENDS)[:2] == (0, "check_blas.py\n")


def test_a_check_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch, capsys):
    """As a sanitizer's program is, which would hold the GPU; here what it started holds a pipe."""
    monkeypatch.setattr(runner, "HERE", tmp_path)
    hangs = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '300'])"
    (tmp_path / "hangs.py").write_text(hangs)
    (tmp_path / "dies.py").write_text("import os; os.kill(os.getpid(), 11)")
    (tmp_path / "passes.py").write_text("print('passing')")
    start = time.monotonic()
    checks = runner.Runner(keep_going=True, timeout=5, jobs=3)
    checks.run(("hangs.py", "dies.py", "passes.py"), tmp_path / "engine.so")
    assert time.monotonic() - start < 200
    with pytest.raises(SystemExit, match="1"):
        checks.finish("ok")
    said = capsys.readouterr().out
    assert said.startswith("begun\nFatal Python error: Aborted\n")
    assert 'hangs.py", line 1 in <module>' in said and 'dies.py", line 1 in <module>' in said
    outcomes = [
        "hangs.py timed out: after 5 s",
        "dies.py failed: killed by signal 11: an access outside an array?",
        "passing",
        *("passed: passes.py", "failed: dies.py", "timed out: hangs.py"),
    ]
    assert [line for line in said.splitlines() if line in outcomes] == outcomes


def test_a_failed_check_of_a_program_hides_no_other(capsys):
    def fails():
        raise AssertionError("what is wrong")

    with pytest.raises(SystemExit, match="1"):
        check_program.run({"one": lambda: 2, "two": fails, "three": lambda: 3})
    said = capsys.readouterr().out
    assert "AssertionError: what is wrong\nFAILED  two, " in said
    assert "ok  three: 3 cases" in said and said.endswith("failed: two\n")
    check_program.run({"one": lambda: 2})


# Stand-ins for the engine and the device: the first memory that is asked for ends the program.
_ENDS_AT_THE_DEVICE = """
import ctypes, runpy, sys
import numpy

class Function:
    restype = ctypes.c_int

    def __init__(self, name):
        self.name = name

    def __call__(self, *arguments):
        if self.name == "blockrnn_allocate" and arguments[0] > 0:
            sys.exit("the device")
        return None if self.restype is ctypes.c_char_p else 1

class Library:
    def __getattr__(self, name):
        setattr(self, name, Function(name))
        return getattr(self, name)

ctypes.CDLL = lambda path: Library()
sys.argv = [sys.argv[1], "--library", "", "--small"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_all_that_is_sanitized_uses_the_device():
    """A program that does not is an error to compute-sanitizer."""
    for name in run.CHECKS:
        command = [sys.executable, "-c", _ENDS_AT_THE_DEVICE, name]
        done = subprocess.run(command, cwd=GPU, capture_output=True, text=True, check=False)
        used = done.stderr.endswith("the device\n")
        assert used == (name not in run.NOT_SANITIZED), done.stdout + done.stderr


def test_large_sizes_must_be_persistent(monkeypatch):
    """Each of them, on a large device."""
    monkeypatch.setattr(check_persistent.check_sequences, "check_call", lambda engine, call: None)
    engine = device_engine.Engine.__new__(device_engine.Engine)
    engine.is_large, engine.persistent_kernels, engine.sanitized = lambda: True, lambda: 0, False
    sizes = [
        (dtype, dims) for dtype, all_dims in check_persistent.LARGE.items() for dims in all_dims
    ]
    for cell in check_persistent.CELLS:
        for dtype, dims in sizes:
            monkeypatch.setattr(check_persistent, "LARGE", {dtype: (dims,)})
            with pytest.raises(AssertionError, match="0 kernels were persistent"):
                check_persistent.large(types.SimpleNamespace(engine=engine), cell)


def test_the_origin_of_a_library_is_its_sources_and_options(tmp_path, monkeypatch):
    """A changed header or option makes another one; a changed note, other paths and another name of
    the compiler do not."""
    code = "import pathlib, run, sys; run.ROOT = pathlib.Path(sys.argv[1]); "
    code += "print(run.origin(sys.argv[2:]))"
    for folder in ("cc/core", "tests/gpu", "bench/gpu"):
        (tmp_path / folder).mkdir(parents=True)

    def origin(*options):
        command = [sys.executable, "-c", code, tmp_path, sys.executable, *options]
        done = subprocess.run(command, cwd=GPU, capture_output=True, text=True, check=True)
        return done.stdout

    seen = [origin()]
    sources = ("cc/core/a.h", "cc/core/a.bzl", "tests/gpu/b.cuh", "bench/gpu/c.cu.cc")
    for number, name in enumerate(sources):
        (tmp_path / name).write_text("0")
        seen.append(origin())
        (tmp_path / name).write_text(f"{number + 1}")
        seen.append(origin())
    seen.append(origin("-O1"))
    assert len(set(seen)) == len(seen)
    (tmp_path / "tests/gpu/note.md").write_text("0")
    assert origin("-O1") == seen[-1]
    assert origin("-O1", "-I", str(tmp_path)) == origin("-O1", "-I", "")
    monkeypatch.setattr(run, "ROOT", tmp_path)
    assert run.origin(["nvcc", "-O1"]) == run.origin(["/other/nvcc", "-O1"]) == seen[-1].strip()


def test_a_library_is_taken_along(tmp_path, monkeypatch):
    """Built for an architecture where there is no GPU, and used where there is no nvcc; there one
    that was not built from the same sources is refused."""
    built, sources = [], ["first"]
    library, other = tmp_path / "engine.so", tmp_path / "other.so"

    def build(nvcc, architectures, path, jobs, *, strict):
        built.append(architectures)
        path.write_text("built")
        return "fine"

    monkeypatch.setattr(run, "build_gpu", build)
    monkeypatch.setattr(run, "report_ptxas", lambda report: "")
    monkeypatch.setattr(run, "find_nvcc", lambda: "nvcc")
    monkeypatch.setattr(run, "origin", lambda compiler: f"{compiler[1:]} {sources}")
    monkeypatch.setattr(run, "architecture", lambda: pytest.fail("no GPU"))
    run.main(["--build-only", "--architecture", "90", "--library", str(library)])
    assert built == [[90]] and library.read_text() == "built"
    monkeypatch.setattr(run, "architecture", lambda: 90)
    assert run.gpu_library(library, tmp_path, None, 1) == (library, "fine")
    for path in (other, library):
        sources.append("second")
        with pytest.raises(SystemExit, match="not built from these sources for 90"):
            run.gpu_library(path, tmp_path, None, 1)
    assert len(built) == 1


def test_a_refused_persistent_kernel_is_told_under_a_sanitizer_alone(capsys):
    engine = device_engine.Engine.__new__(device_engine.Engine)
    engine.persistent_kernels, engine.sanitized = lambda: 3, True
    engine.expect_persistent(1, 2, "a call")
    assert capsys.readouterr().out == ""
    engine.expect_persistent(1, 4, "a call")
    assert capsys.readouterr().out.startswith("a call: 2 kernels were persistent")
    engine.sanitized = False
    with pytest.raises(AssertionError, match="a call: 2 kernels"):
        engine.expect_persistent(1, 4, "a call")
