"""The bench of layer normalisation: what it prints, with tiny shapes."""

from __future__ import annotations

import re

import pytest
from helpers.children import ROOT, assert_ok, run_python


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_prints_the_times_of_three_layers(layer):
    command = ["-m", "bench.layer_norm", layer, "2", "3", "2", "2"]
    printed = assert_ok(run_python(command, cwd=ROOT), "bench")
    time = r"minimum \d+\.\d\d ms, median \d+\.\d\d ms, \d+\.\d\d of the layer's"
    assert re.fullmatch(rf"layer norm: {time}\nplain: {time}\nkeras: {time}\n", printed)


def test_refuses_what_is_no_shape():
    refused = run_python(["-m", "bench.layer_norm", "LSTM", "2", "3"], cwd=ROOT)
    assert refused.returncode == 2 and "B T I H; got [2, 3]" in refused.stderr
