"""What must not go wrong in tests/gpu on a machine that has a GPU for minutes; without a GPU."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))

import check_program
import device_engine
import run
import runner

GPU = runner.HERE


def _child(code: str, *arguments, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=GPU, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def compile_for_a_gpu(tmp_path_factory):
    """Compiles to PTX that is not optimized, in an eighth of the time; warnings are errors."""
    nvcc = run.find_nvcc()
    if nvcc is None:
        pytest.skip("not run: no nvcc")

    def compile_one(source: pathlib.Path, architectures) -> None:
        command = run.nvcc_command(nvcc, architectures, strict=True)
        command = [option.replace("code=sm_", "code=compute_") for option in command]
        target = tmp_path_factory.mktemp("nvcc") / "source.o"
        command += ["-Xcicc=-O0", "-c", source, "-o", target]
        done = run.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert target.stat().st_size > 0

    return compile_one


@pytest.mark.parametrize("shim", run.GPU_SHIMS, ids=lambda path: f"{path.parent.name}_{path.name}")
def test_shims_compile_for_a_gpu(compile_for_a_gpu, shim):
    """The package's build compiles the engine alone."""
    compile_for_a_gpu(shim, [run.PTX])


@pytest.mark.parametrize(("architectures", "has"), [((75,), ""), ((75, 80), "!")])
def test_a_library_for_old_gpus_alone_multiplies_no_tf32(
    compile_for_a_gpu, tmp_path, architectures, has
):
    """A newer GPU would run the PTX of sm_75, in which the instruction is NaN."""
    source = tmp_path / "has.cu.cc"
    source.write_text(
        '#include "cc/kernels/cuda/step/mma.cuh"\n'
        f'static_assert({"" if has else "!"}blockrnn::cuda::kHasTf32, "as compiled");\n'
    )
    compile_for_a_gpu(source, architectures)


@pytest.mark.parametrize(("option", "code"), [((), 0), (("--require-gpu",), 1)])
def test_no_gpu_is_a_failure_where_one_is_required(option, code):
    done = _child("import run; run.count_gpus = lambda: 0; run.main()", *option)
    assert (done.returncode, done.stdout) == (code, "not run: no GPU\n"), done.stderr


# A stand-in for GPU, compiler and sanitizer: run.py in a process of its own. The first argument is
# a source that may change, the second "sanitizer" or "none", the third the codes of checks that do
# not pass. It prints the essential words of the checks' commands.
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


@pytest.fixture
def parts(tmp_path):
    """run.py with stand-ins and a library that it stores: (code, lines of its output)."""
    source = tmp_path / "source"
    source.write_text("first")

    def run(*options, tool="sanitizer", text=None, codes=None):
        if text is not None:
            source.write_text(text)
        library = ["--library", tmp_path / "new" / "engine.so"]
        done = _child(_PARTS, source, tool, json.dumps(codes or {}), *options, *library)
        return done.returncode, done.stdout.splitlines() + done.stderr.splitlines()

    return run


_PASSED = ["passed: check.py", "ok: the CUDA engine on the GPU"]


def test_a_library_is_built_once_for_the_same_sources(parts):
    one = ("--checks", "check.py", "--sanitizers")
    assert parts(*one) == (0, ["built", "check.py", *_PASSED])
    assert parts(*one) == (0, ["check.py", *_PASSED])
    assert parts(*one, text="second") == (0, ["built", "check.py", *_PASSED])
    # Stored although its kernels spill, and still refused.
    spills = ["ptxas failed: spills", "check.py", "passed: check.py", "failed: ptxas"]
    assert parts(*one, text="spills") == (1, ["built", *spills])
    assert parts(*one) == (1, spills)


def test_what_is_named_is_run_with_and_without_sanitizers(parts):
    named = ("--checks", "check.py", "check_cudnn.py")
    memcheck = ["compute-sanitizer memcheck", "memcheck check.py --small"]
    code, said = parts()
    assert code == 0 and said.count("check_stack.py") == 1
    assert said.count("initcheck check_stack.py --small --unfilled") == 1
    said = parts(*named, "--sanitizers", "memcheck")[1]
    assert said[:4] == ["check.py", "check_cudnn.py", *memcheck]


def test_a_missing_sanitizer_is_a_failure_where_a_gpu_is_required(parts):
    one = ("--checks", "check.py")
    where = "not in CUDA_HOME, PATH or /usr/local/cuda"
    code, said = parts(*one, tool="none")
    assert code == 0 and said[0] == f"compute-sanitizer not run: {where}"
    code, said = parts(*one, "--require-gpu", tool="none")
    assert code == 1 and said[-1] == "failed: compute-sanitizer"
    assert parts(*one, "--require-gpu", "--sanitizers", tool="none")[0] == 0


def test_all_is_run_whatever_fails(parts):
    """And the last lines list what became of each."""
    codes = {
        "check.py": 1, "check_blas.py": check_program.NOT_RUN, "check_tensor.py": None,
        "check_stack.py": -11,
    }  # fmt: skip
    named = ("--checks", *codes, "check_persistent.py", "--sanitizers", "memcheck")
    code, said = parts("--timeout", "60", *named, codes=codes)
    assert code == 1 and "check_tensor.py timed out: after 60 s" in said
    assert (
        "memcheck check_stack.py failed: killed by signal 11: an access outside an array?" in said
    )
    assert said[-4:] == [
        "passed: check_persistent.py, memcheck check_persistent.py",
        "failed: check.py, check_stack.py, memcheck check.py, memcheck check_stack.py",
        "timed out: check_tensor.py, memcheck check_tensor.py",
        "not run: check_blas.py",
    ]
    # What is not run alone has not passed.
    assert parts("--checks", "check_blas.py", "--sanitizers", codes=codes) == (
        0,
        ["check_blas.py", "not run: check_blas.py"],
    )


def test_a_check_that_hangs_is_ended_with_all_that_it_started(tmp_path, monkeypatch, capsys):
    """As a sanitizer's program is, which would hold the GPU; here what it started holds a pipe."""
    monkeypatch.setattr(runner, "HERE", tmp_path)
    hangs = "import subprocess; print('begun', flush=True); subprocess.run(['sleep', '300'])"
    (tmp_path / "hangs.py").write_text(hangs)
    (tmp_path / "dies.py").write_text("import os; os.kill(os.getpid(), 11)")
    start = time.monotonic()
    checks = runner.Runner(timeout=5, jobs=2)
    checks.run(("hangs.py", "dies.py"), tmp_path / "engine.so")
    assert time.monotonic() - start < 200
    with pytest.raises(SystemExit, match="1"):
        checks.finish("ok")
    said = capsys.readouterr().out
    assert said.startswith("begun\nFatal Python error: Aborted\n")
    assert 'hangs.py", line 1 in <module>' in said and 'dies.py", line 1 in <module>' in said
    assert said.endswith("failed: dies.py\ntimed out: hangs.py\n")


def test_a_failed_check_of_a_program_hides_no_other(capsys):
    def fails():
        raise AssertionError("what is wrong")

    every = check_program.options().parse_args([])
    with pytest.raises(SystemExit, match="1"):
        check_program.run(every, {"one": lambda: 2, "two": fails, "three": lambda: 3})
    said = capsys.readouterr().out
    assert "AssertionError: what is wrong\nFAILED  two, " in said
    assert "ok  three: 3 cases" in said and said.endswith("failed: two\n")
    with pytest.raises(SystemExit, match="no check 'four'"):
        check_program.run(check_program.options().parse_args(["--only", "four"]), {"one": fails})


# Stand-ins for the engine and the device: the first memory that is asked for ends the program.
_ENDS_AT_THE_DEVICE = """
import ctypes, runpy, sys
import numpy

sys.modules.update(pytest=None, tensorflow=None, keras=None)  # as there

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
        if name.startswith("emulation"):
            raise AttributeError(name)
        setattr(self, name, Function(name))
        return getattr(self, name)

ctypes.CDLL = lambda path: Library()
sys.argv = [sys.argv[1], "--library", "", "--small"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize("check", run.CHECKS)
def test_all_that_is_sanitized_uses_the_device(check):
    """A program that does not is an error to compute-sanitizer. And none needs more than NumPy."""
    done = _child(_ENDS_AT_THE_DEVICE, check)
    used = done.stderr.endswith("the device\n")
    assert used == (check not in run.NOT_SANITIZED), done.stdout + done.stderr


def test_the_origin_of_a_library_is_its_sources_and_options(tmp_path, monkeypatch):
    """A changed header or option makes another one; a changed note, other paths and another name of
    the compiler do not."""
    monkeypatch.setattr(run, "ROOT", tmp_path)
    seen = [run.origin(["nvcc"])]
    for name in ("cc/core/a.h", "cc/core/a.bzl", "tests/gpu/b.cuh", "bench/gpu/c.cu.cc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        for text in ("0", "1"):
            (tmp_path / name).write_text(text)
            seen.append(run.origin(["nvcc"]))
    seen.append(run.origin(["nvcc", "-O1"]))
    assert len(set(seen)) == len(seen)
    (tmp_path / "tests/gpu/note.md").write_text("0")
    assert run.origin(["/other/nvcc", "-O1"]) == seen[-1]
    assert run.origin(["nvcc", "-I", str(tmp_path)]) == run.origin(["nvcc", "-I", ""])


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
    engine.expect_persistent(1, 4, "a call")
    assert capsys.readouterr().out.startswith("a call: 2 kernels were persistent")
    engine.sanitized = False
    engine.expect_persistent(1, 2, "a call")
    with pytest.raises(AssertionError, match="a call: 2 kernels"):
        engine.expect_persistent(1, 4, "a call")
