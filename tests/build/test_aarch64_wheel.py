"""Wheels for a processor that is not this machine's: tag, binutils, and the build's refusals."""

from __future__ import annotations

import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import pytest
from helpers.children import ROOT, assert_ok, run_python

from tools.pep517 import binutils

pytestmark = pytest.mark.packages

E_MACHINES = {"x86_64": 62, "aarch64": 183}
COMPILER = "aarch64-linux-gnu-gcc"


def library(folder: pathlib.Path, name: str, e_machine: int) -> pathlib.Path:
    """As much of an ELF file as says what processor it is for."""
    file = folder / name
    file.write_bytes(b"\x7fELF".ljust(18, b"\0") + e_machine.to_bytes(2, "little"))
    return file


@pytest.mark.parametrize("machine", E_MACHINES)
def test_the_libraries_say_which_processor_they_are_for(tmp_path, machine):
    files = [library(tmp_path, name, E_MACHINES[machine]) for name in ("a.so", "b.so")]
    assert binutils.machine_of(files) == machine


def test_libraries_for_two_processors_are_refused(tmp_path):
    files = [library(tmp_path, f"{e_machine}.so", e_machine) for e_machine in E_MACHINES.values()]
    with pytest.raises(SystemExit, match="for several processors: aarch64, x86_64"):
        binutils.machine_of(files)


def test_no_library_is_for_this_machine():
    assert binutils.machine_of([]) == platform.machine()


def test_binutils_by_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binutils.find("strip", "x86_64") == "strip"
    with pytest.raises(SystemExit, match="Install binutils-aarch64-linux-gnu "):
        binutils.find("strip", "aarch64")
    program = tmp_path / "aarch64-linux-gnu-strip"
    program.touch(mode=0o755)
    assert binutils.find("strip", "aarch64") == program.name
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert binutils.find("strip", "aarch64") == "strip"


@pytest.mark.skipif(not shutil.which(COMPILER), reason="needs the cross compiler")
@pytest.mark.skipif(platform.machine() == "aarch64", reason="needs another processor")
def test_a_wheel_of_libraries_for_another_processor(tmp_path):
    """Tag and stripping, by a library of two functions in the place of the engine."""
    source = tmp_path / "source.c"
    source.write_text(
        "#include <stdio.h>\n"
        'static int __attribute__((noinline)) local_name(int x) { return printf("%d", x); }\n'
        "int blockrnn_function(int x) { return local_name(x); }\n"
    )
    built = tmp_path / "built"
    (built / "include").mkdir(parents=True)
    (built / "include" / "blockrnn.h").touch()
    file = built / "libblockrnn_cpu_armv8-a.so"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(file), str(source)]
    subprocess.run(command, check=True)
    assert b"local_name" in file.read_bytes()
    facts = {"tensorflow": ["2.7.1"], "compiler": "", "cuda": {}}
    (built / "_build_info.json").write_text(json.dumps(facts))
    program = str(ROOT / "tools" / "wheel.py")
    made = tmp_path / "made"
    done = run_python([program, "--libraries", str(built), "--output", str(made)])
    assert_ok(done, "wheel")
    (wheel,) = made.glob("*.whl")
    assert re.fullmatch(r"tf_blockrnn-[0-9.]+-py3-none-manylinux_2_\d+_aarch64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        assert libraries == [f"tf_blockrnn/{file.name}"]  # none of those built here
        content = archive.read(libraries[0])
        assert json.loads(archive.read("tf_blockrnn/_build_info.json")) == facts
        assert "tf_blockrnn/include/blockrnn.h" in archive.namelist()
    assert b"blockrnn_function" in content and b"local_name" not in content


@pytest.mark.parametrize(
    "has_headers, output, reason",
    [(False, ["--output", "elsewhere"], "has no folder include"), (True, [], "needs --output")],
)
def test_the_build_refuses(tmp_path, has_headers, output, reason):
    package = tmp_path / "tensorflow"
    (package / "include" if has_headers else package).mkdir(parents=True)
    program = str(ROOT / "tools" / "build.py")
    refused = run_python([program, "--aarch64", str(package), *output], cwd=tmp_path)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert reason in line


def probe(package: pathlib.Path) -> subprocess.CompletedProcess:
    """Runs what the build's repository rule runs to describe a TensorFlow for another processor."""
    rule = ROOT / "third_party" / "tensorflow" / "tensorflow_configure.bzl"
    found = re.search(r'_PROBE_PACKAGE = """(.*?)"""', rule.read_text(), flags=re.DOTALL)
    return run_python(["-c", found[1]], TENSORFLOW_PACKAGE=str(package))


def test_the_probe_of_a_package(tmp_path, tf):
    """It answers what an importable TensorFlow says itself, for each flag of the compiler."""
    package = tmp_path / "tensorflow"
    missing = probe(package)
    assert missing.returncode == 1 and "has 0 versions of TensorFlow beside it" in missing.stderr
    information = tmp_path / "tensorflow-2.7.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.7.1\n"
    )
    facts = json.loads(assert_ok(probe(package), "probe"))
    assert facts["version"] == "2.7.1" and facts["lib"] == str(package)
    ours = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")]
    assert facts["compile_flags"] == ours
    assert facts["link_flags"][1:] == tf.sysconfig.get_link_flags()[1:]


def test_every_tensorflow_is_pinned_for_aarch64():
    (matrix,) = re.findall(r"^MATRIX := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import aarch64_wheel as w\n"
        f"for version in {[*matrix.split(), '2.7']}:\n"
        "    pins = w.pins(version)\n"
        "    print(pins['tensorflow'], 'numpy' in pins, 'tensorflow-cpu' in pins)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == len(matrix.split())
    for version, line in zip(matrix.split(), lines, strict=True):
        assert re.fullmatch(rf"tensorflow=={re.escape(version)}\.\d+ True False", line)
    assert "No requirements file pins TensorFlow 2.7." in done.stderr
