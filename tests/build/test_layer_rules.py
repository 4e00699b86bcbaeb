"""Which file may include or import which: the arrows between the layers point one way."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import pytest
from helpers.children import ROOT

PACKAGE = ROOT / "tf_blockrnn"

# Which includes a file may have, by the longest prefix of its path: patterns of whole names. The
# arrows point from the ops and their kernels to the engines and from there to the core.
STANDARD = r"[a-z_0-9]+"  # <vector>
EIGEN = r"(unsupported/)?Eigen/.*"
INTRINSICS = r"(immintrin|arm_neon)\.h"  # the compiler's own
CUDA = r"(cuda_.*|cublas_v2\.h|cooperative_groups\.h)"
POSIX = r"(dlfcn|unistd)\.h"
TENSORFLOW = r"(tensorflow|absl|tsl|xla)/.*"
INCLUDE_RULES = {
    "cc/core/": [STANDARD, r"cc/core/.*"],
    # Of POSIX the size of the caches alone.
    "cc/kernels/cpu/cache_size.h": [STANDARD, r"(fcntl|unistd)\.h"],
    # All whose text is in the engines' version (cc/core/engine_version.h).
    "cc/kernels/cpu/engine.h": [STANDARD, r"cc/core/.*"],
    "cc/kernels/cuda/engine.h": [STANDARD, r"cc/core/.*"],
    "cc/kernels/cpu/tuning.h": [STANDARD, r"cc/kernels/cpu/cache_size\.h"],
    "cc/kernels/cpu/": [STANDARD, INTRINSICS, EIGEN, r"cc/core/.*", r"cc/kernels/cpu/.*"],
    "cc/kernels/cuda/": [STANDARD, POSIX, EIGEN, CUDA, r"cc/core/.*", r"cc/kernels/cuda/.*"],
    "cc/ops/": [STANDARD, TENSORFLOW, r"cc/core/.*", r"cc/ops/.*"],
    "cc/kernels/": [
        STANDARD,
        POSIX,
        EIGEN,
        TENSORFLOW,
        r"cc/core/.*",
        r"cc/ops/.*",
        r"cc/kernels/[^/]*",
        r"cc/kernels/(cpu|cuda)/engine\.h",
        r"cc/loader/.*",
    ],
    "cc/loader/": [
        STANDARD,
        POSIX,
        r"sys/auxv\.h",  # what the processor supports
        r"cc/core/.*",
        r"cc/kernels/(cpu|cuda)/engine\.h",
        r"cc/loader/.*",
    ],
    "cc/inference/blockrnn.h": [r"std(def|int)\.h"],  # for C, too
    "cc/inference/": [
        STANDARD,
        INTRINSICS,
        EIGEN,
        r"cc/core/.*",
        r"cc/kernels/cpu/engine\.h",
        r"cc/loader/.*",
        r"cc/inference/.*",
    ],
    "cc/xla/": [
        STANDARD,
        TENSORFLOW,
        r"cc/core/.*",
        r"cc/ops/.*",
        r"cc/kernels/[^/]*",
        r"cc/kernels/cuda/engine\.h",
        r"cc/loader/.*",
        r"cc/xla/.*",
    ],
}


def forbidden_includes(path: str, text: str) -> list[str]:
    """The includes of a file that the rules do not allow; `path` is relative to the root."""
    folder = max((prefix for prefix in INCLUDE_RULES if path.startswith(prefix)), key=len)
    included = re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, flags=re.MULTILINE)
    allowed = re.compile("|".join(INCLUDE_RULES[folder]))
    return [name for name in included if not allowed.fullmatch(name)]


SOURCES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "cc").rglob("*")
    if path.suffix in (".cc", ".h", ".cuh")
)


def test_includes():
    assert len(SOURCES) > 150
    found = {path: forbidden_includes(path, (ROOT / path).read_text("utf-8")) for path in SOURCES}
    assert not {path: names for path, names in found.items() if names}


def test_who_depends_on_the_version_of_the_engines():
    """Any change of their interfaces compiles these again."""
    text = '#include "cc/core/engine_version.h"'
    assert [path for path in SOURCES if text in (ROOT / path).read_text("utf-8")] == [
        "cc/kernels/cpu/engine.cc",
        "cc/kernels/cuda/engine.cu.cc",
        "cc/loader/cpu_engine_loader.cc",
        "cc/loader/cuda_engine_loader.cc",
    ]


# Import circles.


def modules_of(folder: Path, package: str = "") -> dict[str, str]:
    """The texts of the modules in a folder by their full names, a package by its own."""
    found = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join((package, *parts)).strip(".").removesuffix(".__init__")
        found[name] = path.read_text(encoding="utf-8")
    return found


def imported(text: str, modules: set[str]) -> set[str]:
    """Those of the modules that one imports anywhere, in its functions and for type checkers, too.

    `from package import module` is an import of the module alone: Python imports the package of a
    module before it, whoever asks for it.
    """
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                names.add(full if full in modules else node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {value.value for value in node.args if isinstance(value, ast.Constant)}
    return names & modules


@pytest.mark.parametrize("folder,package", [(PACKAGE, "tf_blockrnn"), (ROOT / "tools", "")])
def test_no_module_imports_itself_by_way_of_others(folder, package):
    texts = modules_of(folder, package)
    assert len(texts) > 10
    edges = {name: imported(text, set(texts)) for name, text in texts.items()}
    graphlib.TopologicalSorter(edges).prepare()  # raises a CycleError


def test_private_parts_of_tensorflow_are_used_in_one_place():
    using = {name for name, text in modules_of(PACKAGE).items() if "tensorflow.python" in text}
    assert using == {"_tf_private"}
