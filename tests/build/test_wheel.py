"""The wheel and the source distribution: contents, metadata, tags, and that they install."""

from __future__ import annotations

import email
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest
from helpers.children import ROOT, assert_ok, run_python

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("wheel")]

PACKAGE = ROOT / "tf_blockrnn"
FACTS = "_build_info.json"
BACKEND = str(ROOT / "tools" / "pep517")


def make_wheel(folder, *more) -> tuple[pathlib.Path, str]:
    """The wheel and what the program prints."""
    command = [str(ROOT / "tools" / "wheel.py"), "--output", str(folder), *map(str, more)]
    printed = assert_ok(run_python(command), "wheel")
    (wheel,) = folder.glob("*.whl")
    return wheel, printed


@pytest.fixture(scope="module")
def printed_and_wheel(tmp_path_factory):
    wheel, printed = make_wheel(tmp_path_factory.mktemp("wheel"))
    return printed, wheel


@pytest.fixture
def wheel(printed_and_wheel):
    return printed_and_wheel[1]


def metadata(wheel: pathlib.Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_its_name_and_metadata(printed_and_wheel):
    printed, wheel = printed_and_wheel
    assert f"{sys.executable} -m pip install {wheel}" in printed
    assert f"{wheel.stat().st_size / 1e6:.1f} MB" in printed
    # PyPI takes neither local versions nor plain linux tags.
    assert re.fullmatch(r"tf_blockrnn-[0-9.]+-py3-none-manylinux_2_\d+_\w+\.whl", wheel.name)
    asked = metadata(wheel)
    assert asked["Requires-Python"] == ">=3.11"
    assert sorted(asked.get_all("Requires-Dist")) == [
        "keras>=3.11",
        "numpy",
        'tensorflow-cpu<2.22,>=2.19; extra == "tensorflow-cpu"',
        'tensorflow<2.22,>=2.19; extra == "tensorflow"',
    ]


def test_libraries_for_several_tensorflows(tmp_path):
    """Those for another TensorFlow are added; a second set for the same one is refused."""
    facts = json.loads((PACKAGE / FACTS).read_text())
    other = tmp_path / "other"
    other.mkdir()
    (ours,) = PACKAGE.glob("libblockrnn_ops_tf*.so")
    shutil.copy(ours, other / "libblockrnn_ops_tf2.7.so")
    (other / FACTS).write_text(json.dumps({**facts, "tensorflow": ["2.7.1"]}))
    wheel, _ = make_wheel(tmp_path / "made", other)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        merged = json.loads(archive.read(f"tf_blockrnn/{FACTS}"))
    assert merged == {**facts, "tensorflow": ["2.7.1", *facts["tensorflow"]]}
    assert "tf_blockrnn/libblockrnn_ops_tf2.7.so" in names
    assert f"tf_blockrnn/{ours.name}" in names
    (other / "libblockrnn_ops_tf2.7.so").rename(other / ours.name)
    command = [str(ROOT / "tools" / "wheel.py"), "--output", str(tmp_path / "none"), str(other)]
    refused = run_python(command)
    assert refused.returncode == 1 and "for the same TensorFlow" in refused.stderr


# Installed where the tests run, but not with the wheel.
DEVELOPMENT = ["matplotlib", "onnx", "onnxruntime", "pytest", "torch"]


def test_it_installs_and_runs_in_an_empty_environment(wheel, tmp_path):
    environment = tmp_path / "environment"
    assert_ok(run_python(["-m", "venv", "--without-pip", str(environment)]), "venv")
    python = environment / "bin" / "python"
    # --no-index: what the wheel needs comes from this environment, seen through a .pth file.
    install = ["--quiet", "install", "--no-deps", "--no-index", str(wheel)]
    assert_ok(run_python(["-m", "pip", "--python", str(python), *install]), "pip install")
    (site_packages,) = environment.glob("lib/python*/site-packages")
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages / "shared.pth").write_text("\n".join(shared))
    code = (
        # What is None cannot be imported.
        f"import sys; sys.modules.update(dict.fromkeys({DEVELOPMENT}))\n"
        "import tf_blockrnn, tensorflow as tf\n"
        "import os, tf_blockrnn.inference, tf_blockrnn.layers, tf_blockrnn.weights\n"
        "assert os.path.exists(os.path.join(tf_blockrnn.__path__[0], 'include', 'blockrnn.h'))\n"
        "cell = tf_blockrnn.raw_ops.GRUBlockCell(x=tf.ones([1, 2]), h_prev=tf.fill([1, 2], 0.1),"
        " w_ru=tf.fill([4, 4], 0.5), w_c=tf.fill([4, 2], 0.5), b_ru=tf.ones([4]),"
        " b_c=tf.zeros([2]))\n"
        "print(tf_blockrnn.__file__)\n"
        "print(f'{cell.h[0, 0]:.6f}')\n"
    )
    # -I: neither this folder nor PYTHONPATH.
    isolated = subprocess.run(
        [str(python), "-I", "-c", code],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    where, h = assert_ok(isolated, "the op").split()
    assert where.startswith(str(site_packages))
    assert h == "0.175991"  # published for TensorFlow's own op


@pytest.fixture(scope="module")
def source_distribution(tmp_path_factory):
    """Of a copy of the tree in which something was built: the distribution has nothing of that."""
    folder = tmp_path_factory.mktemp("source")
    assert_ok(run_python([str(ROOT / "tools" / "copy_tree.py"), str(folder / "tree")]), "copy")
    for name in ("libblockrnn_cpu_x.so", FACTS, "include/blockrnn.h"):
        built = folder / "tree" / "tf_blockrnn" / name
        built.parent.mkdir(exist_ok=True)
        built.write_text("built before")
    command = ["-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder / "made")]
    assert_ok(run_python([*command, str(folder / "tree")]), "build")
    (archive,) = (folder / "made").glob("*.tar.gz")
    return archive


def test_source_distribution_has_what_the_build_reads(source_distribution):
    with tarfile.open(source_distribution) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert re.fullmatch(r"tf_blockrnn-[0-9.]+\.tar\.gz", source_distribution.name)
    built = {".so", ".pyc"}
    sources = {
        str(path.relative_to(ROOT))
        for folder in ("cc", "third_party", "tools", "tf_blockrnn")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in built
    }
    made = {f"tf_blockrnn/{FACTS}", "tf_blockrnn/include/blockrnn.h"}
    assert len(sources) > 300 and sources - made <= names
    assert {"README.md", "LICENSE", ".bazelrc", ".bazelversion", "exports.lds"} <= names
    left = [name for name in names if name.endswith(".so") or name.startswith("tests/")]
    assert left == [] and not names & made


def test_pip_builds_the_source_distribution(source_distribution, tmp_path, tf):
    """What pip does with it: the whole build by Bazel, from the objects of this tree's build."""
    with tarfile.open(source_distribution) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.glob("tf_blockrnn-*")
    (tree / ".build").mkdir()
    (tree / ".build" / "bazel-cache").symlink_to((ROOT / ".build" / "bazel-cache").resolve())
    command = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    try:
        built = run_python([*command, str(tree)], timeout=1800)
        assert_ok(built, "pip wheel")
    finally:
        run_python([str(tree / "tools" / "build.py"), "--clean"])
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {pathlib.PurePath(name).name for name in archive.namelist()}
        facts = json.loads(archive.read(f"tf_blockrnn/{FACTS}"))
    assert facts["tensorflow"] == [tf.__version__]
    assert {path.name for path in PACKAGE.glob("*.so")} <= names


def backend(code: str, **variables) -> subprocess.CompletedProcess:
    """Runs code in a process that has the build's backend as `b`."""
    code = f"import sys; sys.path.insert(0, {BACKEND!r}); import build_backend as b\n{code}"
    return run_python(["-c", code], cwd=ROOT, **variables)


def test_the_backend_asks_for_bazel_in_one_line():
    refused = backend("b.build_wheel('none')", PATH="/none")
    assert refused.returncode == 1 and refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("tf_blockrnn is compiled with Bazel, which is missing: install bazel")


def test_the_backend_finds_tensorflow(tmp_path):
    """Of the Python that the environment names, else of the running one, else as a requirement."""
    asked = "print((b.find_tensorflow() or [None])[0], b.tensorflow_requirements())"
    # The last is an isolated build of pip, which hides the environment's packages.
    for variables in ({"PYTHON_BIN_PATH": sys.executable}, {}, {"PYTHONNOUSERSITE": "1"}):
        assert assert_ok(backend(asked, **variables), "backend") == f"{sys.executable} []\n"
    bare = tmp_path / "bare"
    assert_ok(run_python(["-m", "venv", "--without-pip", str(bare)]), "venv")
    python = bare / "bin" / "python"
    refused = backend(asked, PYTHON_BIN_PATH=str(python))
    assert refused.returncode == 1
    assert "which PYTHON_BIN_PATH names, has no TensorFlow to build against" in refused.stderr
    alone = backend(f"b.sys.executable = {str(python)!r}\n{asked}")
    requirement = r"None \['tensorflow(-cpu)?>=2\.19,<2\.22'\]\n"
    assert re.fullmatch(requirement, assert_ok(alone, "backend"))


COMPILER = "aarch64-linux-gnu-gcc"


@pytest.mark.skipif(not shutil.which(COMPILER), reason="needs the cross compiler")
@pytest.mark.skipif(platform.machine() == "aarch64", reason="needs another processor")
def test_a_wheel_of_libraries_for_another_processor(tmp_path):
    """Tag and stripping, by a library of two functions in the place of the engine."""
    (tmp_path / "source.c").write_text(
        "#include <stdio.h>\n"
        'static int __attribute__((noinline)) local_name(int x) { return printf("%d", x); }\n'
        "int blockrnn_function(int x) { return local_name(x); }\n"
    )
    built = tmp_path / "built"
    built.mkdir()
    library = built / "libblockrnn_cpu_armv8-a.so"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), "source.c"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert b"local_name" in library.read_bytes()
    (built / FACTS).write_text(json.dumps({"tensorflow": ["2.7.1"]}))
    options = ["--machine", "aarch64", "--libraries", str(built)]
    wheel, _ = make_wheel(tmp_path / "made", *options)
    assert re.fullmatch(r"tf_blockrnn-[0-9.]+-py3-none-manylinux_2_\d+_aarch64\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        assert libraries == [f"tf_blockrnn/{library.name}"]  # none of those built here
        content = archive.read(libraries[0])
    assert b"blockrnn_function" in content and b"local_name" not in content


def test_what_the_build_knows_of_a_tensorflow_that_cannot_be_imported(tmp_path, tf):
    """The rule's probe of a package answers what the package itself would."""
    package = tmp_path / "tensorflow"
    information = tmp_path / "tensorflow-2.7.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.7.1\n"
    )
    rule = ROOT / "third_party" / "tensorflow" / "tensorflow_configure.bzl"
    found = re.search(r'_PROBE_PACKAGE = """(.*?)"""', rule.read_text(), flags=re.DOTALL)
    probed = run_python(["-c", found[1]], TENSORFLOW_PACKAGE=str(package))
    facts = json.loads(assert_ok(probed, "probe"))
    assert facts["version"] == "2.7.1" and facts["lib"] == str(package)
    ours = [flag for flag in tf.sysconfig.get_compile_flags() if not flag.startswith("-I")]
    assert facts["compile_flags"] == ours
    assert facts["link_flags"][1:] == tf.sysconfig.get_link_flags()[1:]
