"""The version of an engine's interface: what changes it, and what becomes of an engine of another
one."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from helpers.children import ROOT, assert_ok, run_python

_PROGRAM = """
#include <cstdio>
#include "cc/core/engine_version.h"
#include "cc/kernels/cpu/engine.h"
#include "cc/kernels/cuda/engine.h"
int main() {
  std::printf("%jx %jx\\n", std::uintmax_t{blockrnn::kEngineVersion<blockrnn::cpu::Engine>},
              std::uintmax_t{blockrnn::kEngineVersion<blockrnn::cuda::Engine>});
}
"""
_HASH = ROOT / "tools/interface_hash.sh"
_ENGINES = ["cc/kernels/cpu/engine.h", "cc/kernels/cuda/engine.h"]


def versions(folder, header: str = "", old: str = "", new: str = "", *options: str) -> list[str]:
    """Of the CPU and the CUDA engine, with the interface as it is but for one change."""
    headers = [*(path.relative_to(ROOT) for path in (ROOT / "cc/core").glob("*.h")), *_ENGINES]
    for name in headers:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    if header:
        text = (folder / header).read_text(encoding="utf-8")
        assert old in text
        (folder / header).write_text(text.replace(old, new), encoding="utf-8")
    source = folder / "program.cc"
    source.write_text(_PROGRAM)
    subprocess.run([_HASH, folder, folder], check=True)
    command = [os.environ.get("CXX", "g++"), "-std=c++17", *options, "-I", folder, source]
    subprocess.run([*command, "-o", folder / "program"], check=True)
    done = subprocess.run([folder / "program"], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def as_it_is(tmp_path_factory):
    return versions(tmp_path_factory.mktemp("interface"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            (
                "cc/core/sequence_args.h",
                "const T* h_prev = nullptr;",
                "const T* more = nullptr;\n  const T* h_prev = nullptr;",
            ),
            id="a member is inserted",
        ),
        pytest.param(
            ("cc/core/sequence_args.h", "int64_t steps = 0;  // T\n  int64_t batch = 0;  // B",
             "int64_t batch = 0;\n  int64_t steps = 0;"),
            id="two members are swapped",
        ),
        pytest.param(
            ("cc/core/engine_args.h", "<GruSequenceForwardArgs, GruAfterSequenceForwardArgs",
             "<GruAfterSequenceForwardArgs, GruSequenceForwardArgs"),
            id="two functions are swapped",
        ),
        pytest.param(
            ("cc/core/sequence_args.h", "kBFloat16 = 1", "kBFloat16 = 3"), id="another number"
        ),
        pytest.param((_ENGINES[0], "int num_threads", "unsigned num_threads"), id="the CPU's host"),
        pytest.param((_ENGINES[1], "bool persistent", "char persistent"), id="the GPU's host"),
        pytest.param(("", "", "", "-fpack-struct=4"), id="another layout of the compiler"),
    ],
)  # fmt: skip
def test_a_change_of_the_interface_is_another_version(tmp_path, as_it_is, change):
    changed = versions(tmp_path, *change)
    assert len({*as_it_is, *changed}) == 4, "both engines' versions, before and after"


def test_the_version_does_not_depend_on_the_folder(tmp_path, as_it_is):
    assert versions(tmp_path) == as_it_is


@pytest.mark.parametrize("missing", [None, "cc/core/*.h", *_ENGINES])
def test_no_hash_of_headers_that_are_not_there(tmp_path, missing):
    versions(tmp_path)
    for path in tmp_path.glob(missing or "nothing"):
        path.unlink()
    given = [tmp_path, tmp_path / "written"] if missing else []
    failed = subprocess.run([_HASH, *given], capture_output=True, check=False)
    assert failed.returncode != 0 and failed.stderr
    assert not (tmp_path / "written/cc/core/interface_hash.h").exists()


_CALL = """
import numpy as np
from tf_blockrnn import inference, weights
one = weights.DirectionWeights(np.full([3, 5, 4], 0.1), np.full([3, 4, 4], 0.1))
gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
for run in (
    lambda: inference.Session(gru),
    lambda: __import__("tf_blockrnn").gru(np.ones([2, 3, 4], "f"), np.ones([4, 6], "f"),
        np.ones([2, 6], "f"), np.ones([6], "f"), np.ones([6], "f")),
):
    try:
        run()
    except Exception as error:
        print(error)
"""


def test_a_cpu_engine_of_another_version_is_refused(tmp_path):
    """By sessions and by ops."""
    package = shutil.copytree(ROOT / "tf_blockrnn", tmp_path / "tf_blockrnn")
    source = tmp_path / "engine.c"
    source.write_text("long version = 999; long* blockrnn_cpu_engine(void) { return &version; }\n")
    for library in package.glob("libblockrnn_cpu_*.so"):
        command = ["gcc", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
    found = assert_ok(run_python(["-c", _CALL], fresh=True, cwd=tmp_path), "calls")
    assert found.count("has engine version 999, expected ") == 2, found
    assert found.count("; build the project again") == 2
