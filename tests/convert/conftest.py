"""The command of every test here."""

from __future__ import annotations

import pytest
from helpers import convert_command


@pytest.fixture
def convert(tfb, tmp_path, monkeypatch, capsys):
    """Runs it in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return convert_command.runner(capsys)
