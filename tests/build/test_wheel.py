"""The wheel and the source distribution: contents, metadata, tags, and that they install."""

from __future__ import annotations

import email
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from helpers.children import ROOT, assert_ok, run_python

PACKAGE = ROOT / "tf_blockrnn"
FACTS = "_build_info.json"


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
        "keras<3.16,>=3.11",
        "numpy",
        'tensorflow-cpu<2.22,>=2.19; extra == "tensorflow-cpu"',
        'tensorflow<2.22,>=2.19; extra == "tensorflow"',
    ]


def test_auditwheel_agrees_with_the_tag(wheel):
    """Apart from TensorFlow's own libraries, which no policy knows and no wheel may bring along."""
    shown = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(assert_ok(shown, "auditwheel"))
    assert found


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
        "layer = tf_blockrnn.layers.GRU(3)\n"
        "assert layer(tf.ones([1, 4, 2])).shape == (1, 3) and layer.fused, layer.why_not_fused\n"
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
