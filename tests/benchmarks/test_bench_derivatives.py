"""The bench of second derivatives: what it prints, with tiny shapes."""

from __future__ import annotations

import re

from helpers.children import ROOT, assert_ok, run_python


def test_prints_the_times_of_ours_and_keras():
    command = ["-m", "bench.derivatives", "SimpleRNN", "2", "3", "2", "2"]
    printed = assert_ok(run_python(command, cwd=ROOT), "bench")
    time = r"first call \d+\.\d\d s, minimum \d+\.\d\d ms, median \d+\.\d\d ms"
    assert re.fullmatch(rf"ours: {time}\nkeras: {time}\n", printed)


def test_refuses_what_is_no_shape():
    refused = run_python(["-m", "bench.derivatives", "LSTM", "2", "3"], cwd=ROOT)
    assert refused.returncode == 2 and "B T I H; got [2, 3]" in refused.stderr
