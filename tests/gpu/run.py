"""Builds the CUDA engine without TensorFlow and checks it; needs Python, NumPy and a compiler.

python tests/gpu/run.py                 on the GPU of this machine, with compute-sanitizer
python tests/gpu/run.py --require-gpu   the same, but no GPU is a failure
python tests/gpu/run.py --emulate       on the CPU: g++ and tests/gpu/emulation, no CUDA at all
python tests/gpu/run.py --compile-only  nvcc for sm_80 and sm_90, and what ptxas says; no GPU
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import check_ptxas

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIMS = sorted(HERE.glob("shim*.cu.cc"))
EMULATION = [HERE / "emulation" / name for name in ("emulation.cc", "memory.cc", "streams.cc")]
CHECKS = (
    *("check.py", "check_blas.py", "check_sequences.py", "check_integers.py"),
    *("check_persistent.py", "check_stack.py", "check_cudnn.py"),
)
ARCHITECTURES = ("80", "90")
PTX = "80"  # that both are made from
# No initcheck: the checks fill what is not written yet with NaN, which a comparison finds.
SANITIZERS = ("memcheck", "racecheck", "synccheck")


def engine_sources() -> list[pathlib.Path]:
    """What is compiled; parts.cu.cc includes the rest."""
    sources = sorted((ROOT / "cc/kernels/cuda").glob("*.cu.cc"))
    return [source for source in sources if not source.name.endswith(".part.cu.cc")]


def run(command: list, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], check=False, **options)


def compile_all(commands: list[list], jobs: int) -> str:
    """Runs the compilers, and returns what they say; ends the program if one fails."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = list(pool.map(lambda c: run(c, text=True, **options), commands))
    for process in done:
        if process.returncode:
            sys.exit(f"{' '.join(process.args)}\n{process.stdout}")
    return "".join(process.stdout for process in done)


def build(
    compiler: list,
    sources: list[pathlib.Path],
    library: pathlib.Path,
    jobs: int,
    levels: dict[pathlib.Path, str] | None = None,
) -> str:
    """levels: options of some sources alone."""
    objects = [library.parent / (source.name + ".o") for source in sources]
    said = compile_all(
        [
            [*compiler, *filter(None, [(levels or {}).get(source)]), "-c", source, "-o", target]
            for source, target in zip(sources, objects, strict=True)
        ],
        jobs,
    )
    linker = [part for part in compiler if part not in ("-x", "cu", "-dc")]
    return said + compile_all([[*linker, "-shared", *objects, "-o", library]], 1)


def build_emulation(library: pathlib.Path, cublas: pathlib.Path, jobs: int) -> None:
    """The engine in `library`, and a stand-in for cuBLAS."""
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden"]
    compiler += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    # Some distributions' g++ checks longjmp, which cannot know of stacks other than its own.
    compiler += ["-U_FORTIFY_SOURCE", "-I", ROOT, "-isystem", HERE / "emulation"]
    # The shims' own kernels see a few small integers; all others call the emulation's functions.
    levels = {**dict.fromkeys(SHIMS, "-Og"), **dict.fromkeys(EMULATION, "-O2")}
    # What takes longest to compile first, so that the jobs end together.
    build(compiler, [*reversed(SHIMS), *engine_sources(), *EMULATION], library, jobs, levels)
    linked = [*compiler, "-O2", "-shared", f"-Wl,-soname,{cublas.name}"]
    compile_all([[*linked, HERE / "emulation/cublas.cc", "-o", cublas]], 1)


def nvcc_command(nvcc: str, architectures: list[str]) -> list[str]:
    """As cc/kernels/cuda/engine.bzl calls it."""
    command = [nvcc, "-std=c++17", "-O1", "-Werror=all-warnings", "--expt-relaxed-constexpr"]
    command += ["-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-fvisibility=hidden", "-Xptxas=-v"]
    command += ["-lineinfo", "-I", str(ROOT), *architectures, "-x", "cu"]
    return command


def find_nvcc() -> str | None:
    home = os.environ.get("CUDA_HOME")
    places = [f"{home}/bin/nvcc"] if home else []
    places += [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    return next((place for place in places if place and os.path.exists(place)), None)


def count_gpus() -> int:
    """As the driver says; 0 without one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def report_ptxas(text: str) -> None:
    print("\n".join(check_ptxas.summary(check_ptxas.parse(text))))
    if wrong := check_ptxas.check(text):
        sys.exit("\n".join(wrong))


def check(library: pathlib.Path, *options: str, under: tuple[str, ...] = (), jobs: int = 1) -> None:
    """All checks; `jobs` at a time, which is for the emulation: a GPU has one at a time."""

    def one(name: str) -> subprocess.CompletedProcess:
        command = [*under, sys.executable, HERE / name, "--library", library, *options]
        return run(command, text=True, stdout=subprocess.PIPE if jobs > 1 else None)

    # NumPy's threads would spin beside the other job, for products that are too small for them.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, done in zip(CHECKS, pool.map(one, CHECKS), strict=True):
            print(done.stdout or "", end="", flush=True)
            if done.returncode:
                pool.shutdown(cancel_futures=True)
            if done.returncode < 0:
                signal = -done.returncode
                sys.exit(f"{name} was killed by signal {signal}: an access outside an array?")
            if done.returncode:
                sys.exit(done.returncode)


def sanitize(nvcc: str, library: pathlib.Path) -> None:
    beside = pathlib.Path(nvcc).parent / "compute-sanitizer"
    tool = shutil.which("compute-sanitizer") or (str(beside) if beside.exists() else None)
    if tool is None:
        print("not run: compute-sanitizer (not found)")
        return
    for kind in SANITIZERS:
        print(f"compute-sanitizer {kind}", flush=True)
        check(library, "--small", under=(tool, "--tool", kind, "--error-exitcode", "1"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "engine.so"
        if arguments.emulate:
            cublas = library.with_name("libcublas.so.12")
            build_emulation(library, cublas, arguments.jobs)
            check(library, "--emulated", "--cublas", str(cublas), jobs=arguments.jobs)
            print("ok: the CUDA engine in the emulation on the CPU")
            return
        nvcc = find_nvcc()
        if arguments.compile_only:
            if nvcc is None:
                sys.exit("no nvcc in CUDA_HOME, PATH or /usr/local/cuda")
            codes = [f"-gencode=arch=compute_{PTX},code=sm_{a}" for a in ARCHITECTURES]
            report_ptxas(
                build(nvcc_command(nvcc, codes), engine_sources(), library, arguments.jobs)
            )
            return
        missing = "no GPU" if count_gpus() == 0 else "no nvcc" if nvcc is None else None
        if missing:
            print(f"not run: {missing}")
            sys.exit(1 if arguments.require_gpu else 0)
        sources = [*engine_sources(), *SHIMS]
        report_ptxas(build(nvcc_command(nvcc, ["-arch=native"]), sources, library, arguments.jobs))
        check(library)
        sanitize(nvcc, library)
        print("ok: the CUDA engine on the GPU")


if __name__ == "__main__":
    main()
