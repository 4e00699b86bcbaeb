"""What tools/aarch64_tests.py does where a tool is missing."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from helpers.children import ROOT


@pytest.mark.skipif(platform.machine() == "aarch64", reason="needs no emulation")
@pytest.mark.parametrize("length, skips", [("short", True), ("full", False)])
def test_a_missing_tool(tmp_path, length, skips):
    """The short form is a part of `make test`, whose other parts need no cross compiler."""
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
    assert (done.returncode == 0) == skips
    said = done.stdout if skips else done.stderr
    (line,) = said.splitlines()
    assert line.startswith("Skipped the tests for AArch64: ") == skips
    assert "aarch64-linux-gnu-g++ is missing. Install g++-aarch64-linux-gnu" in line
