"""What the build leaves behind: what the libraries export and need, what the loader makes of them,
and how make calls the build."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from helpers.children import ROOT, assert_ok, run_python

from tools import build

PACKAGE = ROOT / "tf_blockrnn"
(OPS,) = (path.name for path in PACKAGE.glob("libblockrnn_ops_tf*.so"))
(XLA,) = (path.name for path in PACKAGE.glob("libblockrnn_xla_tf*.so"))


def objdump(option: str, library: pathlib.Path) -> str:
    command = ["objdump", option, str(library)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def defined_symbols(library: pathlib.Path) -> set[str]:
    """What other libraries can link to."""
    lines = objdump("-T", library).splitlines()
    return {line.split()[-1] for line in lines if re.match(r"[0-9a-f]{16} ", line)} - {
        line.split()[-1] for line in lines if "*UND*" in line
    }


ENGINES = sorted(PACKAGE.glob("libblockrnn_cpu_*.so"))
CUDA_ENGINES = sorted(PACKAGE.glob("libblockrnn_cuda*.so"))


def test_engines_are_built(tfb):
    assert ENGINES
    assert bool(CUDA_ENGINES) == bool(tfb.build_info()["cuda"]["version"])


def test_libraries_export_no_other_names():
    """An engine one symbol, so that no inline function of it replaces another's."""
    for library in [*ENGINES, *CUDA_ENGINES]:
        kind = "cpu" if library in ENGINES else "cuda"
        assert defined_symbols(library) == {f"blockrnn_{kind}_engine"}, library.name
    names = defined_symbols(PACKAGE / OPS)
    assert names and all(name.startswith("blockrnn_") for name in names)
    assert defined_symbols(PACKAGE / XLA) == set()
    header = (PACKAGE / "include" / "blockrnn.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"\b(blockrnn_\w+)\(", header))
    assert "blockrnn_session_run" in declared
    assert defined_symbols(PACKAGE / "libblockrnn_inference.so") >= declared


@pytest.mark.parametrize("library", sorted(PACKAGE.glob("*.so")), ids=lambda path: path.name)
def test_libraries_need_no_gpu_library(library):
    needed = re.findall(r"NEEDED\s+(\S+)", objdump("-p", library))
    # ld-linux holds __tls_get_addr.
    allowed = r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux.*)\.so.*"
    if "ops" in library.name:
        allowed += r"|libtensorflow_framework\.so.*"
    if "xla" in library.name:
        allowed += rf"|libtensorflow_(framework|cc)\.so.*|{re.escape(OPS)}"
    assert [name for name in needed if not re.fullmatch(allowed, name)] == []


@pytest.fixture
def package_copy(tmp_path):
    """A copy of the package to break."""
    return shutil.copytree(PACKAGE, tmp_path / "tf_blockrnn")


@pytest.mark.packages
def test_another_patch_version_is_taken(package_copy):
    info = json.loads((package_copy / "_build_info.json").read_text())
    minor = ".".join(info["tensorflow"][0].split(".")[:2])
    info["tensorflow"] = ["2.4.1", f"{minor}.99"]
    (package_copy / "_build_info.json").write_text(json.dumps(info))
    code = "import tf_blockrnn; print(tf_blockrnn.build_info()['tensorflow'], tf_blockrnn.__file__)"
    result = run_python(["-c", code], cwd=package_copy.parent)
    assert assert_ok(result, "import").startswith(f"{minor}.99 {package_copy}")


@pytest.mark.packages
@pytest.mark.parametrize("broken", [None, b"no library"], ids=["missing", "broken"])
def test_the_ops_work_without_the_xla_library(package_copy, broken):
    library = package_copy / XLA
    library.unlink()
    if broken is not None:
        library.write_bytes(broken)
    code = (
        "import tensorflow as tf, tf_blockrnn\n"
        "x = tf.ones([1, 2])\n"
        "def call(x):\n"
        "  return tf_blockrnn.raw_ops.GRUBlockCell(x=x, h_prev=x, w_ru=tf.ones([4, 4]), "
        "w_c=tf.ones([4, 2]), b_ru=tf.ones([4]), b_c=tf.ones([2]))\n"
        "call(x)\n"
        "print(tf_blockrnn.build_info()['xla'])\n"
        "try:\n  tf.function(call, jit_compile=True)(x)\n"
        "except tf.errors.InvalidArgumentError as error:\n  print('refused', error.message)\n"
    )
    output = assert_ok(run_python(["-c", code], cwd=package_copy.parent), "without XLA")
    assert XLA in output or "no library for XLA" in output
    assert "refused" in output


@pytest.mark.packages
def test_broken_library_says_how_to_build_it(package_copy):
    (package_copy / OPS).write_bytes(b"no library")
    result = run_python(["-c", "import tensorflow, tf_blockrnn"], cwd=package_copy.parent)
    message = result.stderr.strip().splitlines()[-1]
    assert message.startswith("ImportError: ") and f"make build PYTHON={sys.executable}" in message


def test_build_info(tfb, tf):
    info = tfb.build_info()
    assert info["version"] == tfb.__version__
    assert info["tensorflow"].split(".")[:2] == tf.__version__.split(".")[:2]
    assert info["tensorflow"] in info["tensorflow_versions"]
    assert info["compiler"]
    assert info["xla"] == ""
    assert info["cpu_isa"] in info["cpu_isas_available"]
    built = sorted(path.stem.removeprefix("libblockrnn_cpu_") for path in ENGINES)
    assert sorted(info["cpu_isas_built"]) == built
    assert set(info["cpu_isas_available"]) == (
        set(info["cpu_isas_built"]) & set(info["cpu_isas_supported"])
    )
    # Either it was compiled for something or there is a reason.
    assert info["cuda"]["architectures"] or info["cuda"]["missing"]
    assert bool(info["cuda"]["architectures"]) == bool(info["cuda"]["version"])
    gpu = info["gpu"]
    assert len(gpu["devices"]) == len(tf.config.list_physical_devices("GPU"))
    looked = bool(gpu["devices"] and info["cuda"]["architectures"])
    assert bool(gpu["cublas"] or gpu["cublas_problem"]) == looked
    assert gpu["driver"] or not gpu["devices"]


@pytest.mark.parametrize(
    "argument, variable, python",
    [
        ("", None, ".venv/bin/python"),
        ("", "", ".venv/bin/python"),
        ("", "given/python", "given/python"),
        ("PYTHON=named/python", None, "named/python"),
        ("PYTHON=named/python", "given/python", "named/python"),
    ],
)
def test_make_takes_python_as_argument_or_from_the_environment(argument, variable, python):
    # The variables that a make that runs these tests passes to its children.
    inherited = re.compile("PYTHON|MFLAGS|MAKE.*")
    env = {name: value for name, value in os.environ.items() if not inherited.fullmatch(name)}
    if variable is not None:
        env["PYTHON"] = variable
    command = ["make", "--dry-run", "build", *argument.split()]
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    lines = assert_ok(result, "make").splitlines()
    assert lines[-1] == f"{python} tools/build.py"
    # Reported, since a variable in the environment is easily overlooked.
    assert ("PYTHON=given/python, from the environment" in lines) == (python == "given/python")


def show_gpus(monkeypatch, folder, gpus):
    """A stand-in for nvidia-smi that lists these; none: it fails, as without a driver."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{'; '.join(f'echo {gpu}' for gpu in gpus) or 'exit 9'}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def cuda_facts():
    """What a build would be made for: the facts alone cost no compilation."""
    with build.lock():
        made = build.bazel_build("//:build_info")
        return json.loads((made / "_build_info.json").read_text())["cuda"]


# On a machine without a GPU, as nvidia-smi is then not there or fails.
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("TF_BLOCKRNN_CUDA", "0", "switched off by TF_BLOCKRNN_CUDA=0"),
        (
            "TF_BLOCKRNN_CUDA_ARCHITECTURES",
            "",
            "no GPU on the machine of the build, and TF_BLOCKRNN_CUDA_ARCHITECTURES named none",
        ),
    ],
)
def test_build_without_cuda_says_why(monkeypatch, tmp_path, variable, value, reason):
    show_gpus(monkeypatch, tmp_path, [])
    monkeypatch.setenv(variable, value)
    assert cuda_facts() == {"version": "", "architectures": [], "missing": reason}


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA_ENGINES, reason="not run: no nvcc")
@pytest.mark.parametrize(
    ("given", "gpus", "built"),
    [
        ("", ["9.0", "8.9", "9.0"], ["sm_89", "sm_90"]),
        ("", ["5.2"], ["sm_80"]),
        ("80, 90", ["8.9"], ["sm_80", "sm_90"]),
        ("all", ["8.9"], ["sm_80", "sm_90"]),
    ],
)
def test_build_is_for_the_gpus_of_the_machine(monkeypatch, tmp_path, given, gpus, built):
    """And for those of TF_BLOCKRNN_CUDA_ARCHITECTURES instead, which a wheel's build sets."""
    show_gpus(monkeypatch, tmp_path, gpus)
    monkeypatch.setenv("TF_BLOCKRNN_CUDA_ARCHITECTURES", given)
    facts = cuda_facts()["architectures"]
    # The oldest of "all" is one that this nvcc knows.
    assert [name for name in facts if given != "all" or name >= "sm_80"] == built
    assert (facts[0] in ("sm_70", "sm_75")) == (given == "all")


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA_ENGINES, reason="not run: no nvcc")
@pytest.mark.parametrize("given", ["hopper", "80,12"])
def test_build_for_an_unknown_gpu_is_an_error(monkeypatch, capfd, given):
    monkeypatch.setenv("TF_BLOCKRNN_CUDA_ARCHITECTURES", given)
    with pytest.raises(SystemExit, match=r"The build failed\."):
        cuda_facts()
    assert "TF_BLOCKRNN_CUDA_ARCHITECTURES" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("verb", "given", "seen"),
    [("build", None, "none"), ("wheel", None, "all"), ("wheel", "90", "90")],
)
@pytest.mark.parametrize("variable", ["TF_BLOCKRNN_CUDA_ARCHITECTURES", "TF_BLOCKRNN_ISA"])
def test_a_wheel_is_for_all_machines(monkeypatch, tmp_path, variable, verb, given, seen):
    """A stand-in for Python prints what it would build for, for each of its calls."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "${{{variable}-none}} $1"\n')
    python.chmod(0o755)
    monkeypatch.delenv(variable, raising=False)
    if given:
        monkeypatch.setenv(variable, given)
    command = ["make", "--silent", verb, f"PYTHON={python}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    scripts = ["tools/build.py", *(["tools/wheel.py"] if verb == "wheel" else [])]
    assert assert_ok(result, "make").splitlines() == [f"{seen} {script}" for script in scripts]
