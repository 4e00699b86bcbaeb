"""What the build leaves behind: what the libraries export and need, the loader's refusals, the
doctor, the wheel, how make calls the build."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest
from helpers.children import ROOT, assert_ok, run_python

from tools import build

PACKAGE = ROOT / "tf_blockrnn"
(OPS,) = (path.name for path in PACKAGE.glob("libblockrnn_ops_tf*.so"))
(XLA,) = (path.name for path in PACKAGE.glob("libblockrnn_xla_tf*.so"))


def objdump(option: str, library: pathlib.Path) -> str:
    return assert_ok(
        subprocess.run(
            ["objdump", option, str(library)], capture_output=True, text=True, check=False
        ),
        "objdump",
    )


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


@pytest.mark.parametrize("library", [*ENGINES, *CUDA_ENGINES], ids=lambda path: path.name)
def test_engine_exports_one_symbol(library):
    kind = "cpu" if library in ENGINES else "cuda"
    assert defined_symbols(library) == {f"blockrnn_{kind}_engine"}


def test_ops_library_exports_its_own_names_only():
    names = defined_symbols(PACKAGE / OPS)
    assert names
    assert all(name.startswith("blockrnn_") for name in names)


def test_inference_library_exports_what_the_header_declares():
    header = (PACKAGE / "include" / "blockrnn.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"\b(blockrnn_\w+)\(", header))
    assert "blockrnn_session_run" in declared
    assert defined_symbols(PACKAGE / "libblockrnn_inference.so") >= declared


def test_xla_library_exports_nothing():
    assert defined_symbols(PACKAGE / XLA) == set()


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


def import_error(package_copy) -> str:
    """The message of the ImportError that an import of the copy after TensorFlow must raise."""
    result = run_python(["-c", "import tensorflow, tf_blockrnn"], cwd=package_copy.parent)
    assert result.returncode == 1
    last_line = result.stderr.strip().splitlines()[-1]
    assert last_line.startswith("ImportError: ")
    return last_line


@pytest.mark.packages
def test_another_tensorflow_is_refused_before_loading(package_copy, tf):
    info = json.loads((package_copy / "_build_info.json").read_text())
    info["tensorflow"] = ["2.3.4", "2.4.1"]
    (package_copy / "_build_info.json").write_text(json.dumps(info))
    # Loading this would raise another error.
    (package_copy / OPS).write_bytes(b"no library")
    message = import_error(package_copy)
    assert "built for TensorFlow 2.3.4, 2.4.1, but" in message
    assert tf.__version__ in message
    assert f"make build PYTHON={sys.executable}" in message


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
@pytest.mark.parametrize("missing", [OPS, "_build_info.json"])
def test_missing_libraries_say_how_to_build_them(package_copy, missing):
    (package_copy / missing).unlink()
    message = import_error(package_copy)
    assert str(package_copy) in message
    assert f"make build PYTHON={sys.executable}" in message


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
    assert f"make build PYTHON={sys.executable}" in import_error(package_copy)


def test_build_info(tfb, tf):
    info = tfb.build_info()
    assert info["version"] == tfb.__version__
    assert info["tensorflow"].split(".")[:2] == tf.__version__.split(".")[:2]
    assert info["tensorflow"] in info["tensorflow_versions"]
    assert info["compiler"]
    assert info["xla"] == ""
    assert info["cpu_isa"] in info["cpu_isas_available"]
    assert info["cpu_isas_built"] == [
        path.stem.removeprefix("libblockrnn_cpu_") for path in ENGINES
    ]
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


def test_importing_the_package_does_not_import_its_layers():
    code = "import sys, tf_blockrnn; sys.exit('tf_blockrnn.layers' in sys.modules)"
    assert_ok(run_python(["-c", code]), "import")
    code = "import tf_blockrnn; tf_blockrnn.layers.GRUCell"
    assert_ok(run_python(["-c", code]), "import")


def test_doctor_is_content(tfb):
    report = assert_ok(run_python(["-m", "tf_blockrnn", "doctor"]), "doctor")
    info = tfb.build_info()
    for fact in (info["version"], info["tensorflow"], info["compiler"], info["cpu_isa"]):
        assert fact in report
    assert re.search(rf"^built for +{', '.join(info['cpu_isas_built'])}$", report, re.MULTILINE)
    assert re.search(rf"^processor runs +{', '.join(info['cpu_isas_supported'])}$", report, re.M)
    assert (info["cuda"]["missing"] or ", ".join(info["cuda"]["architectures"])) in report
    assert re.search(r"^GRUBlockCell +ok", report, flags=re.MULTILINE)


def test_doctor_reports_an_engine_that_cannot_be_opened():
    result = run_python(["-m", "tf_blockrnn", "doctor"], TF_BLOCKRNN_CPU_ISA="x86-64-v0")
    assert result.returncode == 1
    assert "no CPU engine can be opened" in result.stdout
    assert re.search(r"^GRUBlockCell +FAILED.*x86-64-v0", result.stdout, flags=re.MULTILINE)


@pytest.mark.packages
def test_doctor_sees_wrong_numbers(package_copy):
    raw_ops = package_copy / "raw_ops.py"
    doctored = "\n_right = GRUBlockCell\n" + (
        "def GRUBlockCell(**arguments):\n"
        "    result = _right(**arguments)\n"
        "    return result._replace(h=result.h + 0.001)\n"
    )
    raw_ops.write_text(raw_ops.read_text() + doctored)
    result = run_python(["-m", "tf_blockrnn", "doctor"], cwd=package_copy.parent)
    assert result.returncode == 1
    assert re.search(r"^GRUBlockCell +WRONG", result.stdout, flags=re.MULTILINE)


@pytest.mark.packages
def test_tensorflows_cudnn_ops_keep_to_the_switch(tfb):
    """No kernel for any of them, and every one of ours."""
    code = (
        "import tf_blockrnn\n"
        "from tensorflow.python.framework import kernels\n"
        "def on_cpu(op):\n"
        "    found = kernels.get_registered_kernels_for_op(op).kernel\n"
        "    return any(kernel.device_type == 'CPU' for kernel in found)\n"
        "ops = [name for name in tf_blockrnn.raw_ops.__all__ if name.startswith('Cudnn')]\n"
        "print(sum(map(on_cpu, ops)), sum(on_cpu(f'BlockRNN>{op}') for op in ops))\n"
    )
    del tfb
    for switch, theirs in (("0", "0"), ("1", "11"), ("", "11")):
        out = assert_ok(run_python(["-c", code], TF_BLOCKRNN_EXTEND_TF=switch), "import")
        assert out.split() == [theirs, "11"], f"TF_BLOCKRNN_EXTEND_TF={switch}"


@pytest.mark.parametrize("switch", ["false", "no", "00", " 0", "2"])
def test_no_other_switch_is_taken_for_one(switch):
    """Python refuses it before the library is loaded, to which all but 0 is on."""
    message = f"ImportError: TF_BLOCKRNN_EXTEND_TF must be 0 or 1, or not set; it is {switch!r}"
    result = run_python(["-c", "import tf_blockrnn"], TF_BLOCKRNN_EXTEND_TF=switch)
    assert result.returncode == 1 and message in result.stderr


def test_doctor_tells_of_a_wrong_switch():
    command = ["-m", "tf_blockrnn", "doctor"]
    result = run_python(command, fresh=True, cwd=ROOT, TF_BLOCKRNN_EXTEND_TF="no")
    assert result.returncode == 1
    assert "ImportError: TF_BLOCKRNN_EXTEND_TF must be 0 or 1" in result.stderr
    assert "Traceback" not in result.stderr


def test_unknown_verb_shows_the_usage():
    result = run_python(["-m", "tf_blockrnn", "frobnicate"])
    assert result.returncode == 2
    assert "doctor" in result.stderr


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


def test_cache_of_the_build_forgets_what_is_not_used(tmp_path):
    now, day = time.time(), 24 * 60 * 60
    used = {"old": (40, 40), "read": (1, 40), "written": (40, 1), "young": (29, 29)}
    for name, (read, written) in used.items():
        entry = tmp_path / "cas" / name[:2] / name
        entry.parent.mkdir(parents=True)
        entry.write_text(name)
        os.utime(entry, (now - read * day, now - written * day))
    build.drop_unused(tmp_path)
    left = {entry.name for entry in tmp_path.rglob("*") if entry.is_file()}
    assert left == {"read", "written", "young"}
    build.drop_unused(tmp_path / "none")


def show_gpus(monkeypatch, folder, gpus):
    """A stand-in for nvidia-smi that lists these; none: it fails, as without a driver."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{'; '.join(f'echo {gpu}' for gpu in gpus) or 'exit 9'}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.fixture
def no_gpus(monkeypatch, tmp_path):
    show_gpus(monkeypatch, tmp_path, [])


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
def test_build_without_cuda_says_why(monkeypatch, no_gpus, variable, value, reason):
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
