"""Which file may include or import which: the arrows between the layers point one way."""

from __future__ import annotations

import ast
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
    "cc/kernels/cpu/cache_size.h": [STANDARD, r"unistd\.h"],
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
    "cc/inference/blockrnn.h": [r"stdint\.h"],  # for C, too
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


@pytest.mark.parametrize(
    "path, include",
    [
        ("cc/core/a.h", '"Eigen/Core"'),
        ("cc/core/a.h", '"cc/kernels/cpu/engine.h"'),
        ("cc/kernels/cpu/a.cc", '"tensorflow/core/framework/tensor.h"'),
        ("cc/kernels/cpu/a.cc", '"absl/status/status.h"'),
        ("cc/kernels/cpu/a.cc", '"cc/kernels/kernel.h"'),
        ("cc/kernels/cuda/a.cu.cc", "<tsl/platform/errors.h>"),
        ("cc/kernels/cuda/a.cu.cc", '"cc/kernels/cpu/gemm/simd.h"'),
        ("cc/kernels/a.cc", '"cc/kernels/cpu/gemm/simd.h"'),
        ("cc/ops/a.cc", '"cc/kernels/kernel.h"'),
        ("cc/kernels/a.cc", '"cc/xla/ffi_call.h"'),
        ("cc/loader/a.cc", '"absl/status/status.h"'),
        ("cc/inference/a.cc", '"tensorflow/core/framework/tensor.h"'),
        ("cc/inference/a.cc", '"cc/kernels/kernel.h"'),
    ],
)
def test_include_rules_see_a_wrong_arrow(path, include):
    assert forbidden_includes(path, f"#include <vector>\n  # include {include}\n")


# The modules of `weights/` that take objects of Keras. The others import them where they have one.
KERAS_OBJECTS = {"_keras_graph", "_keras_layers"}
NEED_TENSORFLOW = re.compile(
    r"(tensorflow|keras|tf_keras|tf_blockrnn\.(_ops|layers|raw_ops|_fuse|_enable_(tf_)?keras))(\..*)?"
    rf"|tf_blockrnn\.weights\.({'|'.join(KERAS_OBJECTS)})"
)


def imported_with_the_module(text: str) -> list[str]:
    """Full names of what a module imports when it is imported itself; not for type checkers."""
    found, nodes = [], list(ast.parse(text).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            nodes += ast.iter_child_nodes(node)
    return found


def test_weights_and_inference_import_no_framework():
    modules = [path for name in ("weights", "inference") for path in (PACKAGE / name).glob("*.py")]
    assert len(modules) > 20
    wrong = {
        path.name: [name for name in names if NEED_TENSORFLOW.fullmatch(name)]
        for path in modules
        if path.stem not in KERAS_OBJECTS
        for names in [imported_with_the_module(path.read_text(encoding="utf-8"))]
    }
    assert not {name: found for name, found in wrong.items() if found}


@pytest.mark.parametrize(
    "line, is_wrong",
    [
        ("import numpy, tensorflow as tf", True),
        ("from tensorflow.python.framework import ops", True),
        ("try:\n    import keras\nexcept ImportError:\n    pass", True),
        ("class A:\n    from tf_blockrnn import layers", True),
        ("from tf_blockrnn.weights._keras_layers import from_layers", True),
        ("from tf_blockrnn._ops.sequences import lstm", True),
        ("def f():\n    import tensorflow", False),
        ("if TYPE_CHECKING:\n    import keras", False),
        ("from tf_blockrnn._types import LSTMState", False),
        ("from tf_blockrnn.weights.keras import from_keras", False),
    ],
)
def test_import_rules_see_a_wrong_arrow(line, is_wrong):
    names = imported_with_the_module(line)
    assert any(NEED_TENSORFLOW.fullmatch(name) for name in names) == is_wrong


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


def circles(texts: dict[str, str]) -> list[list[str]]:
    """The groups of modules each of which imports, directly or not, all others of its group."""
    edges = {name: imported(text, set(texts)) for name, text in texts.items()}
    reached = {}
    for start in edges:
        found, nodes = set(), list(edges[start])
        while nodes:
            node = nodes.pop()
            if node not in found:
                found.add(node)
                nodes += edges[node]
        reached[start] = found
    groups = {
        tuple(sorted(other for other in found if name in reached[other]))
        for name, found in reached.items()
        if name in found
    }
    return [list(group) for group in sorted(groups)]


@pytest.mark.parametrize("folder,package", [(PACKAGE, "tf_blockrnn"), (ROOT / "tools", "")])
def test_no_module_imports_itself_by_way_of_others(folder, package):
    texts = modules_of(folder, package)
    assert len(texts) > 10
    assert not circles(texts)


def test_circles_are_seen():
    texts = {
        "a": "from a import b",
        "a.b": "def f():\n    import a.c",
        "a.c": "if TYPE_CHECKING:\n    from a.d import D",
        "a.d": "importlib.import_module('a.b')",
        "a.e": "from a import f\nfrom a.d import D",
        "a.f": "",
    }
    assert circles(texts) == [["a.b", "a.c", "a.d"]]
    assert circles({"a": "import a.b", "a.b": "from a import name"}) == [["a", "a.b"]]


def test_private_parts_of_tensorflow_are_used_in_one_place():
    using = {name for name, text in modules_of(PACKAGE).items() if "tensorflow.python" in text}
    assert using == {"_tf_private"}
