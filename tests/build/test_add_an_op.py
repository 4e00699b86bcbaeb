"""CONTRIBUTING's worked example of a new op: in a copy of the sources it builds, and it computes.

Only what the op needs is compiled: the op table with all of its rows, and the op's own kernel. The
engine is the one that is built.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from helpers.children import ROOT, assert_ok, run_python
from helpers.markdown import promised, python_blocks

pytestmark = [pytest.mark.packages, pytest.mark.xdist_group("add an op")]

# What every kernel needs.
SHARED = ("devices.cc", "kernel.cc", "sequence_util.cc", "tensorflow_call.cc")


@pytest.fixture(scope="module")
def blocks():
    """The blocks of the example: C++ by the file that it goes to, and the Python."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Adding an op")[2].partition("\n## ")[0]
    found = dict(
        re.findall(r"```cpp\n// (cc/\S+?)(?:,[^\n]*)?\n(.*?)```", section, flags=re.DOTALL)
    )
    (found["python"],) = python_blocks(section)
    return found


@pytest.fixture(scope="module")
def flags(tf):
    """How the running TensorFlow wants to be compiled and linked with."""
    # Its headers are none of ours to warn of.
    compile_flags = [re.sub("^-I", "-isystem", flag) for flag in tf.sysconfig.get_compile_flags()]
    ours = "-std=c++17 -O0 -DNDEBUG -fPIC -Wall -Werror".split()
    return [*compile_flags, *ours], tf.sysconfig.get_link_flags()


@pytest.fixture(scope="module")
def copy(blocks, tmp_path_factory):
    """A copy of the package and the C++ sources, with the example added."""
    copied = tmp_path_factory.mktemp("copy")
    for name in ("cc", "tf_blockrnn"):
        shutil.copytree(
            ROOT / name, copied / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
    for engine in (ROOT / "tf_blockrnn").glob("libblockrnn_cpu_*.so"):
        (copied / "tf_blockrnn" / engine.name).symlink_to(engine)
    for name, array in (
        ("cc/ops/op_table.h", "kOpTable"),
        ("cc/ops/cell_docs.h", "kCellDocs"),
    ):
        source = copied / name
        before, start, after = source.read_text(encoding="utf-8").partition(f" {array}[] = {{\n")
        rows, end, rest = after.partition("\n};\n")
        assert start and end, name
        text = before + start + rows + "\n" + blocks[name].rstrip() + end + rest
        source.write_text(text, encoding="utf-8")
    # The engines that are built have that version.
    subprocess.run([ROOT / "tools/interface_hash.sh", ROOT, copied], check=True)
    kernels = "cc/kernels/block_simple_rnn_kernels.cc"
    assert not (copied / kernels).exists()
    (copied / kernels).write_text(blocks[kernels], encoding="utf-8")
    return copied


def _compile(copied, flags, sources, *options):
    together = copied / "together.cc"
    together.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    command = [os.environ.get("CXX", "g++"), *flags[0], "-iquote", ".", together.name, *options]
    return subprocess.run([*command, *flags[1]], cwd=copied, capture_output=True, text=True)


def test_the_worked_example_builds_and_computes(blocks, copy, flags):
    sources = [
        *sorted(f"cc/ops/{path.name}" for path in (copy / "cc/ops").glob("*.cc")),
        *(f"cc/kernels/{name}" for name in (*SHARED, "block_simple_rnn_kernels.cc")),
        *(f"cc/loader/{path.name}" for path in (copy / "cc/loader").glob("*.cc")),
    ]
    (name,) = (path.name for path in (ROOT / "tf_blockrnn").glob("libblockrnn_ops_tf*.so"))
    library = f"tf_blockrnn/{name}"
    built = _compile(copy, flags, sources, "-shared", "-o", library, "-ldl")
    assert built.returncode == 0, built.stderr
    code = blocks["python"] + (
        "print('from', tf_blockrnn.__file__)\n"
        "print(tf_blockrnn.raw_ops.BlockSimpleRNN.__doc__)\n"
        "try:\n  tf_blockrnn.raw_ops.BlockSimpleRNN(seq_len_max=1, x=tf.ones([2, 1, 3]),"
        " h_prev=tf.ones([1, 2]), w=tf.ones([4, 2]), b=tf.zeros([2]))\n"
        "except tf.errors.InvalidArgumentError as error:\n  print(error.message)\n"
    )
    shown = assert_ok(run_python(["-c", code], cwd=copy, PYTHONPATH=str(copy)), "the example")
    assert shown.splitlines()[:1] == promised(blocks["python"])
    assert f"from {copy}" in shown
    # Docs and the contract come from the row.
    assert "seq_len_max: A `Tensor` of type `int64`." in shown
    assert "The input, `[T, B, I]`." in shown
    assert "BlockSimpleRNN: w must have shape [I+H, H] = [5, 2], got [4, 2]" in shown


@pytest.mark.parametrize(
    "right, wrong",
    [("w_x=w ", "w_x=weights "), ('RowAt("Block', 'RowAt("Bloc')],
    ids=["renamed to what the row lacks", "no such row"],
)
def test_a_wrong_name_does_not_compile(blocks, copy, flags, right, wrong):
    text = blocks["cc/kernels/block_simple_rnn_kernels.cc"]
    assert right in text
    (copy / "cc/kernels/wrong.cc").write_text(text.replace(right, wrong), encoding="utf-8")
    refused = _compile(copy, flags, ["cc/kernels/wrong.cc"], "-fsyntax-only")
    assert refused.returncode != 0
    assert "NoSuchName" in refused.stderr


def test_an_undocumented_argument_does_not_compile(copy, flags):
    docs = copy / "cc/ops/argument_docs.h"
    text = docs.read_text(encoding="utf-8")
    assert '{"peepholes",' in text
    docs.write_text(text.replace('{"peepholes",', '{"peephole",'), encoding="utf-8")
    refused = _compile(copy, flags, ["cc/ops/op_docs.cc"], "-fsyntax-only")
    docs.write_text(text, encoding="utf-8")
    assert refused.returncode != 0
    assert "this argument or attr has no doc" in refused.stderr
    assert "'p', 'e', 'e', 'p', 'h', 'o', 'l', 'e', 's'" in refused.stderr
