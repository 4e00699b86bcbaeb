"""Builds the CUDA engine without TensorFlow and checks it; needs Python, NumPy and a compiler.

python tests/gpu/run.py                 on the GPU of this machine, with compute-sanitizer
python tests/gpu/run.py --require-gpu   the same, but no GPU is a failure
python tests/gpu/run.py --emulate       on the CPU: g++ and tests/gpu/emulation, no CUDA at all
python tests/gpu/run.py --compile-only  nvcc for sm_80 and sm_90, and what ptxas says; no GPU

On a GPU the whole takes a while. In parts, with the library built once:

python tests/gpu/run.py --require-gpu --library engine.so --sanitizers
python tests/gpu/run.py --require-gpu --library engine.so --checks --sanitizers memcheck
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
from collections.abc import Sequence

import check_ptxas

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIMS = sorted(HERE.glob("shim*.cu.cc"))
EMULATION = [HERE / f"emulation/{name}.cc" for name in ("device", "threads", "memory", "streams")]
CHECKS = (
    *("check.py", "check_blas.py", "check_sequences.py", "check_integers.py"),
    *("check_persistent.py", "check_tensor.py", "check_stack.py", "check_stack_order.py"),
    *("check_failures.py", "check_cudnn.py"),
)
ARCHITECTURES = (80, 90)
PTX = 80  # that all are made from
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


def nvcc_command(nvcc: str, architectures: Sequence[int], *, strict: bool) -> list[str]:
    """As cc/kernels/cuda/engine.bzl calls it. strict: a warning is an error."""
    errors = ("-Werror=all-warnings", "-Xcompiler=-Werror") if strict else ()
    command = [nvcc, "-std=c++17", "-O1", "--expt-relaxed-constexpr", *errors]
    command += ["-Xcompiler=-fPIC,-Wall,-Wextra,-fvisibility=hidden", "-Xptxas=-v"]
    command += [f"-gencode=arch=compute_{min(a, PTX)},code=sm_{a}" for a in architectures]
    return [*command, "-lineinfo", "-I", str(ROOT), "-x", "cu"]


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


def architecture() -> int:
    """Of the first GPU, for which the driver is there: 90 is sm_90."""
    driver, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
    parts = []
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        part = ctypes.c_int(0)
        for code in (
            driver.cuInit(0),
            driver.cuDeviceGet(ctypes.byref(device), 0),
            driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device),
        ):
            if code != 0:
                sys.exit(f"the driver cannot say what the GPU is: error {code}")
        parts.append(part.value)
    return 10 * parts[0] + parts[1]


def report_ptxas(text: str) -> None:
    print("\n".join(check_ptxas.summary(check_ptxas.parse(text))))
    if wrong := check_ptxas.check(text):
        sys.exit("\n".join(wrong))


def check(
    names: Sequence[str],
    library: pathlib.Path,
    *options: str,
    under: tuple[str, ...] = (),
    jobs: int = 1,
) -> None:
    """The checks; `jobs` at a time, which is for the emulation: a GPU has one at a time."""

    def one(name: str) -> subprocess.CompletedProcess:
        command = [*under, sys.executable, HERE / name, "--library", library, *options]
        return run(command, text=True, stdout=subprocess.PIPE if jobs > 1 else None)

    # NumPy's threads would spin beside the other job, for products that are too small for them.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        # Without the pool where there is one job: nothing must begin that is not to be waited for.
        results = pool.map(one, names) if jobs > 1 else map(one, names)
        for name, done in zip(names, results, strict=True):
            print(done.stdout or "", end="", flush=True)
            if done.returncode:
                pool.shutdown(cancel_futures=True)
            if done.returncode < 0:
                signal = -done.returncode
                sys.exit(f"{name} was killed by signal {signal}: an access outside an array?")
            if done.returncode:
                sys.exit(done.returncode)


def sanitize(kinds: Sequence[str], nvcc: str, library: pathlib.Path) -> None:
    beside = pathlib.Path(nvcc).parent / "compute-sanitizer"
    tool = shutil.which("compute-sanitizer") or (str(beside) if beside.exists() else None)
    if tool is None:
        print("not run: compute-sanitizer (not found)")
        return
    for kind in kinds:
        print(f"compute-sanitizer {kind}", flush=True)
        check(CHECKS, library, "--small", under=(tool, "--tool", kind, "--error-exitcode", "1"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--require-gpu", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--library", type=pathlib.Path, help="is kept; as it is if it is there. For a GPU"
    )
    parser.add_argument("--checks", nargs="*", choices=CHECKS, default=CHECKS, metavar="CHECK.py")
    parser.add_argument("--sanitizers", nargs="*", choices=SANITIZERS, default=SANITIZERS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "engine.so"
        if arguments.emulate:
            cublas = library.with_name("libcublas.so.12")
            build_emulation(library, cublas, arguments.jobs)
            options = ("--emulated", "--cublas", str(cublas))
            check(arguments.checks, library, *options, jobs=arguments.jobs)
            print("ok: the CUDA engine in the emulation on the CPU")
            return
        nvcc = find_nvcc()
        if arguments.compile_only:
            if nvcc is None:
                sys.exit("no nvcc in CUDA_HOME, PATH or /usr/local/cuda")
            compiler = nvcc_command(nvcc, ARCHITECTURES, strict=True)
            report_ptxas(build(compiler, engine_sources(), library, arguments.jobs))
            return
        missing = "no GPU" if count_gpus() == 0 else "no nvcc" if nvcc is None else None
        if missing:
            print(f"not run: {missing}")
            sys.exit(1 if arguments.require_gpu else 0)
        kept = arguments.library and arguments.library.resolve()
        if kept is None or not kept.exists():
            # Another compiler's warnings are to be read, not to keep the checks from running.
            compiler = nvcc_command(nvcc, [architecture()], strict=False)
            said = build(compiler, [*engine_sources(), *SHIMS], library, arguments.jobs)
            for line in said.splitlines():
                if "warning" in line:
                    print(line)
            report_ptxas(said)
            if kept is not None:
                shutil.copy(library, kept)
        check(arguments.checks, kept or library)
        sanitize(arguments.sanitizers, nvcc, kept or library)
        print("ok: the CUDA engine on the GPU")


if __name__ == "__main__":
    main()
