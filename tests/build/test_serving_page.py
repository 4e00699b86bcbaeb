"""The examples and commands of docs/serving.md run, in their order, and do what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import types
from typing import NamedTuple

import numpy as np
import pytest
from helpers.children import ROOT, assert_ok, environment
from helpers.markdown import promised, run_block
from helpers.tolerances import ONNX

pytestmark = pytest.mark.docs

PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
FLAGS = re.MULTILINE | re.DOTALL
BLOCKS = re.findall(r"^ *```(\w+)\n(.*?)^ *```$", PAGE, flags=FLAGS)
# Each says so on the line before it.
NOT_RUN = re.findall(r"Not run here:\n\n *```\w+\n(.*?)^ *```$", PAGE, flags=FLAGS)


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


class Tensor(NamedTuple):
    """Triton's, as far as the page uses it."""

    name: str
    value: np.ndarray

    def as_numpy(self) -> np.ndarray:
        return self.value


def test_everything_in_order(tfb, tmp_path, monkeypatch):
    """Later examples use the names and the files of earlier ones."""
    del tfb
    pytest.importorskip("ai_edge_litert", reason="not run: ai-edge-litert is not installed")
    assert PAGE.count("```") == 2 * len(BLOCKS) and PAGE.count("Not run here") == len(NOT_RUN)
    # As a checkout, with a command `python` in bin/ that is this one.
    shutil.copytree(ROOT / "examples" / "cpp_serving", tmp_path / "examples" / "cpp_serving")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "python"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    command.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    triton = types.ModuleType("triton_python_backend_utils")
    triton.Tensor, triton.InferenceResponse = Tensor, list
    triton.get_input_tensor_by_name = lambda request, name: request[name]
    monkeypatch.setitem(sys.modules, triton.__name__, triton)
    names, shown = {"__name__": "serving"}, []
    for number, (kind, code) in enumerate(BLOCKS):
        if code in NOT_RUN:
            continue
        if kind == "python":
            lines = run_block(code, f"<block {number} of serving.md>", names)
            assert lines == promised(code)
        else:
            shown.append(run_commands(code, tmp_path))
    assert ["per second" in each for each in shown] == [True, True, True, False]
    assert_triton_serves(names, tmp_path)


def assert_triton_serves(names: dict, folder) -> None:
    """The page's class, called as Triton does, gives the outputs of the page's model."""
    model = names["TritonPythonModel"]()
    model.initialize({"model_repository": str(folder / "models" / "rnn"), "model_version": "1"})
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 40)).astype(np.float32)
    responses = model.execute([{"x": Tensor("x", each)} for each in x])
    assert len(responses) == 2
    for each, ((name, made),) in zip(x, responses, strict=True):
        assert name == "outputs"
        assert np.abs(made[:, -1] - names["model"](each)).max() < ONNX
