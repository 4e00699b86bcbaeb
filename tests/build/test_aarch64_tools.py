"""What tools/aarch64_tests.py does where a tool is missing."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from helpers.children import ROOT

pytestmark = pytest.mark.isa


@pytest.mark.skipif(platform.machine() == "aarch64", reason="needs no emulation")
@pytest.mark.parametrize("length", ["short", "full"])
def test_a_missing_tool(tmp_path, length):
    source = tmp_path / "googletest" / "src" / "gtest-all.cc"
    source.parent.mkdir(parents=True)
    source.touch()
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "cpp_tests.py"), "aarch64", "--length", length],
        env={"PATH": str(tmp_path), "GOOGLETEST_SOURCE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("aarch64-linux-gnu-g++ is missing. Install g++-aarch64-linux-gnu")
