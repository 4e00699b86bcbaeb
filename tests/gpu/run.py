"""Builds the CUDA engine without TensorFlow and checks it; needs Python, NumPy and a compiler.

python tests/gpu/run.py                 on the GPU of this machine, with compute-sanitizer
python tests/gpu/run.py --require-gpu   the same, but no GPU is a failure
python tests/gpu/run.py --emulate       on the CPU: g++ and tests/gpu/emulation, no CUDA at all
python tests/gpu/run.py --compile-only  nvcc for sm_80 and sm_90, and the report of ptxas; no GPU

On a GPU the whole takes a while. In parts, with the library built once for all of them (and for
`python -m bench.gpu`); --sanitizers without names is none of them:

python tests/gpu/run.py --require-gpu --library .build/gpu/engine.so --sanitizers
python tests/gpu/run.py --require-gpu --library .build/gpu/engine.so \
  --checks check.py check_stack.py --sanitizers memcheck

Built beforehand on a machine without a GPU, and taken along with its .built file:

python tests/gpu/run.py --build-only --architecture 90 --library .build/gpu/engine.so

Whatever fails, all that is named is run, and the last lines list what became of each. --timeout 120
ends what hangs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import check_ptxas
import runner

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SHIMS = sorted(HERE.glob("shim*.cu.cc"))
# A GPU's library is the checks' and the benchmark's, so that it is built once.
GPU_SHIMS = [*SHIMS, ROOT / "bench/gpu/shim.cu.cc"]
EMULATION = [HERE / f"emulation/{name}.cc" for name in ("device", "threads", "memory", "streams")]
CHECKS = (
    *("check.py", "check_blas.py", "check_sequences.py", "check_integers.py"),
    *("check_persistent.py", "check_tensor.py", "check_stack.py", "check_stack_order.py"),
    *("check_failures.py", "check_cudnn.py"),
)
INSTANCES = "cc/kernels/cuda/instances.bzl"
ARCHITECTURES = (80, 90)
PTX = 80  # that all are made from
# These do nothing on the device with --small, which a sanitizer reports as an error.
NOT_SANITIZED = ("check_blas.py", "check_integers.py", "check_failures.py", "check_cudnn.py")
# Each with its options. memcheck need not report failing CUDA calls: the engine does, and after a
# refused persistent kernel it continues step by step. Warnings of racecheck count as errors: with
# --small no library's kernels run, and its manual recommends fixing them too.
SANITIZERS = {
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
    "synccheck": (),
    "initcheck": (),
}
# For the programs: initcheck regards what was filled with NaN as initialised. Outputs are filled,
# because the checks also read the gaps; there a comparison finds elements that were not written.
SANITIZED_OPTIONS = {"initcheck": ("--unfilled",)}


def engine_sources(folder: pathlib.Path) -> list[pathlib.Path]:
    """The engine's sources; those that its build writes, in `folder`, with a header for them."""
    subprocess.run([ROOT / "tools/interface_hash.sh", ROOT, folder], check=True)
    rules: dict = {}
    exec((ROOT / INSTANCES).read_text(), rules)
    written = []
    for name, text in rules["instance_sources"]().items():
        written.append(folder / name)
        written[-1].write_text(text)
    return [*written, *sorted((ROOT / "cc/kernels/cuda").rglob("*.cu.cc"))]


def run(command: list, **options) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], check=False, **options)


def compile_all(commands: list[list], jobs: int) -> list[str]:
    """Runs the compilers and returns the output of each; ends the program if one fails."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = list(pool.map(lambda c: run(c, text=True, **options), commands))
    for process in done:
        if process.returncode:
            sys.exit(f"{' '.join(process.args)}\n{process.stdout}")
    return [process.stdout for process in done]


def build(
    compiler: list,
    sources: list[pathlib.Path],
    library: pathlib.Path,
    jobs: int,
    levels: dict[pathlib.Path, str] | None = None,
) -> dict[pathlib.Path, str]:
    """Returns the compiler's output for each source. levels: options of single sources."""
    compiler = [*compiler, "-I", library.parent]  # with what engine_sources has written
    # Two sources may have the same name.
    objects = [library.parent / f"{n}_{source.name}.o" for n, source in enumerate(sources)]
    outputs = compile_all(
        [
            [*compiler, *filter(None, [(levels or {}).get(source)]), "-c", source, "-o", target]
            for source, target in zip(sources, objects, strict=True)
        ],
        jobs,
    )
    linker = [part for part in compiler if part not in ("-x", "cu", "-dc")]
    compile_all([[*linker, "-shared", *objects, "-o", library]], 1)
    return dict(zip(sources, outputs, strict=True))


def build_emulation(library: pathlib.Path, cublas: pathlib.Path, jobs: int) -> None:
    """Builds the engine into `library`, and a substitute for cuBLAS."""
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden"]
    compiler += ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    compiler += ["-I", ROOT, "-isystem", HERE / "emulation"]
    # The shim's kernels only see a few small integers; all others run the emulation's functions.
    levels = {**dict.fromkeys(SHIMS, "-Og"), **dict.fromkeys(EMULATION, "-O2")}
    # What takes longest to compile first, so that the jobs end together.
    sources = [*reversed(SHIMS), *engine_sources(library.parent), *EMULATION]
    build(compiler, sources, library, jobs, levels)
    linked = [*compiler, "-O2", "-shared", f"-Wl,-soname,{cublas.name}"]
    compile_all([[*linked, HERE / "emulation/cublas.cc", "-o", cublas]], 1)


def nvcc_command(nvcc: str, architectures: Sequence[int], *, strict: bool) -> list[str]:
    """The flags of cc/kernels/cuda/engine.bzl. strict: warnings are errors."""
    errors = ("-Werror=all-warnings", "-Xcompiler=-Werror") if strict else ()
    command = [nvcc, "-std=c++17", "-O1", "--expt-relaxed-constexpr", *errors]
    command += ["-Xcompiler=-fPIC,-Wall,-Wextra,-fvisibility=hidden", "-Xptxas=-v"]
    command += ["-Xfatbin=-compress-all"]
    command += [f"-gencode=arch=compute_{min(a, PTX)},code=sm_{a}" for a in architectures]
    return [*command, "-lineinfo", "-I", str(ROOT), "-x", "cu"]


def build_gpu(
    nvcc: str, architectures: Sequence[int], library: pathlib.Path, jobs: int, *, strict: bool
) -> str:
    """Returns the report of ptxas for the engine's kernels, without the shims' unused copies."""
    compiler = nvcc_command(nvcc, architectures, strict=strict)
    sources = engine_sources(library.parent)
    outputs = build(compiler, [*sources, *GPU_SHIMS], library, jobs)
    for line in "".join(outputs.values()).splitlines():
        if "warning" in line:
            print(line)
    return "".join(outputs[source] for source in sources)


def origin(compiler: list[str]) -> str:
    """A hash of what a GPU's library is built from: the compiler's options and sources. Not where
    the compiler or the sources are, so that a library may be taken to another machine."""
    found = hashlib.sha256(repr(compiler[1:]).replace(str(ROOT), "").encode())
    for folder in ("cc", "tests/gpu", "bench/gpu"):
        for source in sorted((ROOT / folder).rglob("*")):
            built = "emulation" not in source.parts
            if built and source.suffix in (".h", ".cuh", ".cc", ".bzl"):
                text = source.read_bytes()
                found.update(f"{source.relative_to(ROOT)} {len(text)} ".encode() + text)
    return found.hexdigest()


def _report_of(library: pathlib.Path) -> pathlib.Path:
    """The file beside a library with its origin and the report of ptxas."""
    return library.with_name(library.name + ".built")


def built_from(library: pathlib.Path) -> str:
    """The origin of a library that gpu_library has stored."""
    return _report_of(library).read_text().partition("\n")[0]


def gpu_library(
    cached: pathlib.Path | None,
    folder: pathlib.Path,
    nvcc: str | None,
    jobs: int,
    target: int | None = None,
) -> tuple[pathlib.Path, str]:
    """The library for a GPU of architecture `target`, and the report of ptxas. None: of this
    machine.

    cached: reused if it was built from the current sources, else written, together with its origin
    and the report. None: the library is built in `folder`.
    """
    architectures = [target or architecture()]
    library = folder / "engine.so"
    if cached is None:
        # Warnings of another compiler are printed, but do not prevent the checks.
        return library, build_gpu(nvcc, architectures, library, jobs, strict=False)
    cached = cached.resolve()
    report = _report_of(cached)
    now = origin(nvcc_command(nvcc or "nvcc", architectures, strict=False))
    before, _, ptxas = (report.read_text() if report.exists() else "").partition("\n")
    if cached.exists() and before == now:
        return cached, ptxas
    if nvcc is None:
        sys.exit(f"no nvcc, and {cached} was not built from these sources for {architectures[0]}")
    ptxas = build_gpu(nvcc, architectures, library, jobs, strict=False)
    cached.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)  # if the copy fails, no old origin describes a new library
    shutil.copy(library, cached)
    report.write_text(f"{now}\n{ptxas}")
    return cached, ptxas


def find_tool(name: str) -> str | None:
    home = os.environ.get("CUDA_HOME")
    places = [f"{home}/bin/{name}"] if home else []
    places += [shutil.which(name), f"/usr/local/cuda/bin/{name}"]
    return next((place for place in places if place and os.path.exists(place)), None)


def find_nvcc() -> str | None:
    return find_tool("nvcc")


def count_gpus() -> int:
    """As the driver reports; 0 without a driver."""
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


def report_ptxas(text: str) -> str:
    """Prints a summary of the report of ptxas and returns its problems."""
    print("\n".join(check_ptxas.summary(check_ptxas.parse(text))), flush=True)
    return "\n".join(check_ptxas.check(text))


def sanitize(
    checks: runner.Runner,
    kinds: Sequence[str],
    names: Sequence[str],
    tool: str,
    library: pathlib.Path,
) -> None:
    for kind in kinds:
        print(f"compute-sanitizer {kind}", flush=True)
        under = (tool, "--tool", kind, "--error-exitcode", "1", *SANITIZERS[kind])
        sanitized = [name for name in names if name not in NOT_SANITIZED]
        options = ("--small", *SANITIZED_OPTIONS.get(kind, ()))
        checks.run(sanitized, library, *options, kind=kind, under=under)


def on_the_gpu(arguments: argparse.Namespace, folder: pathlib.Path) -> None:
    nvcc, sanitizer = find_nvcc(), find_tool("compute-sanitizer")
    can_build = nvcc is not None or arguments.library is not None
    missing = "no GPU" if count_gpus() == 0 else None if can_build else "no nvcc"
    if missing:
        print(f"not run: {missing}")
        sys.exit(1 if arguments.require_gpu else 0)
    checks = runner.Runner(timeout=arguments.timeout)
    kinds = arguments.sanitizers
    if kinds and sanitizer is None:
        outcome = "failed" if arguments.require_gpu else "not run"
        checks.add("compute-sanitizer", outcome, "not in CUDA_HOME, PATH or /usr/local/cuda")
        kinds = ()
    library, ptxas = gpu_library(
        arguments.library, folder, nvcc, arguments.jobs, arguments.architecture
    )
    if wrong := report_ptxas(ptxas):
        checks.add("ptxas", "failed", wrong)
    checks.run(arguments.checks, library)
    sanitize(checks, kinds, arguments.checks, sanitizer, library)
    checks.finish("ok: the CUDA engine on the GPU")


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--emulate", action="store_true")
    add("--compile-only", action="store_true")
    add("--require-gpu", action="store_true")
    add("--jobs", type=int, default=os.cpu_count() or 1)
    add(
        "--library", type=pathlib.Path,
        help="kept, and reused until the sources change. For a GPU",
    )  # fmt: skip
    add(
        "--architecture", type=int, metavar="NN",
        help="90 for sm_90; without it, that of this machine's GPU",
    )  # fmt: skip
    add("--build-only", action="store_true", help="write --library for --architecture; no GPU")
    add("--checks", nargs="+", choices=CHECKS, default=CHECKS, metavar="CHECK.py")
    add("--sanitizers", nargs="*", choices=tuple(SANITIZERS), default=tuple(SANITIZERS))
    add(
        "--timeout", type=float, metavar="SECONDS",
        help="for each check program and each sanitizer's run of it; more is a failure",
    )  # fmt: skip
    arguments = parser.parse_args(argv)
    if arguments.build_only and not (arguments.library and arguments.architecture):
        parser.error("--build-only needs --library and --architecture")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    arguments = arguments_of(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = folder / "engine.so"
        if arguments.emulate:
            cublas = library.with_name("libcublas.so.12")
            build_emulation(library, cublas, arguments.jobs)
            checks = runner.Runner(timeout=arguments.timeout, jobs=arguments.jobs)
            checks.run(arguments.checks, library, "--cublas", str(cublas))
            checks.finish("ok: the CUDA engine in the emulation on the CPU")
        elif arguments.build_only:
            nvcc = find_nvcc()
            _, ptxas = gpu_library(
                arguments.library, folder, nvcc, arguments.jobs, arguments.architecture
            )
            if wrong := report_ptxas(ptxas):
                sys.exit(wrong)
        elif arguments.compile_only:
            nvcc = find_nvcc()
            if nvcc is None:
                sys.exit("no nvcc in CUDA_HOME, PATH or /usr/local/cuda")
            ptxas = build_gpu(nvcc, ARCHITECTURES, library, arguments.jobs, strict=True)
            if wrong := report_ptxas(ptxas):
                sys.exit(wrong)
        else:
            on_the_gpu(arguments, folder)


if __name__ == "__main__":
    main()
