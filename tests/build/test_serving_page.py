"""The examples and commands of docs/serving.md run, in their order, and do what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
from helpers.children import ROOT, assert_ok, environment
from helpers.markdown import promised, python_blocks, run_block
from helpers.tolerances import ONNX

pytestmark = [pytest.mark.docs, pytest.mark.xdist_group("serving")]

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
FLAGS = re.MULTILINE | re.DOTALL
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", PAGE, flags=FLAGS)
# Each says so on the line before it.
NOT_RUN = re.findall(
    r"Not run here:\n\n *```\w+\n(.*?)^ *```$", PAGE, flags=re.MULTILINE | re.DOTALL
)


def test_all_code_is_run_or_marked():
    assert PAGE.count("```") == 2 * len(BLOCKS)
    run = [code for kind, code in BLOCKS if kind in ("python", "sh") and code not in NOT_RUN]
    assert len(python_blocks(PAGE)) == 5
    assert len(run) + len(NOT_RUN) == len(BLOCKS)
    assert PAGE.count("Not run here") == len(NOT_RUN) == 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """As a checkout, with a command `python` in bin/ that is this one."""
    made = tmp_path_factory.mktemp("serving_page")
    shutil.copytree(ROOT / "examples" / "cpp_serving", made / "examples" / "cpp_serving")
    (made / "bin").mkdir()
    command = made / "bin" / "python"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    command.chmod(0o755)
    return made


def run_commands(commands: str, folder) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment(PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=False,
    )
    return assert_ok(done, commands)


def triton_stub() -> types.ModuleType:
    """What the page's model uses of Triton's module."""
    stub = types.ModuleType("triton_python_backend_utils")

    class Tensor:
        def __init__(self, name, value):
            self.name, self.value = name, value

        def as_numpy(self):
            return self.value

    class Response:
        def __init__(self, tensors):
            self.tensors = tensors

    stub.Tensor, stub.InferenceResponse = Tensor, Response
    stub.get_input_tensor_by_name = lambda request, name: request[name]
    return stub


def test_everything_in_order(tfb, folder, monkeypatch):
    """Later examples use the names and the files of earlier ones."""
    del tfb
    pytest.importorskip("ai_edge_litert", reason="not run: ai-edge-litert is not installed")
    monkeypatch.chdir(folder)
    stub = triton_stub()
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    names, shown = {"__name__": "serving"}, []
    for number, (kind, code) in enumerate(BLOCKS):
        if code in NOT_RUN:
            continue
        if kind == "python":
            lines = run_block(code, f"<block {number} of serving.md>", names)
            assert lines == promised(code)
        else:
            shown.append(run_commands(code, folder))
    assert ["per second" in each for each in shown] == [True, True, True, False]
    assert_triton_serves(names, folder)


def assert_triton_serves(names: dict, folder) -> None:
    """The page's class, called as Triton does, gives the outputs of the page's model."""
    model = names["TritonPythonModel"]()
    model.initialize({"model_repository": str(folder / "models" / "rnn"), "model_version": "1"})
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 40)).astype(np.float32)
    tensor = sys.modules["triton_python_backend_utils"].Tensor
    responses = model.execute([{"x": tensor("x", each)} for each in x])
    assert len(responses) == 2
    for each, response in zip(x, responses, strict=True):
        (made,) = response.tensors
        assert made.name == "outputs"
        assert np.abs(made.value[:, -1] - names["model"](each)).max() < ONNX
