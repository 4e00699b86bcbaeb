"""The bench of recompute: a quick run, and what its report says of targets."""

from __future__ import annotations

import json

from helpers import children

from bench import recompute, recompute_report

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_quick_run_measures_memory_and_time(tmp_path):
    arguments = ["-m", "bench", "recompute", "--quick", "--out", str(tmp_path)]
    out = children.assert_ok(children.run_python(arguments, cwd=children.ROOT, fresh=True), "it")
    result = json.loads((tmp_path / "recompute.json").read_text())
    assert [row["cell"] for row in result["rows"]] == list(recompute.CELLS)
    for row in result["rows"]:
        assert [entry["recompute"] for entry in row["choices"]] == list(recompute.QUICK)
        assert all(entry["median_ms"] > 0 and "bytes" in entry for entry in row["choices"])
    assert "recompute" in out and "True" in out
    assert (tmp_path / "recompute.png").read_bytes().startswith(PNG)


def _result(megabytes: float, milliseconds: float) -> dict:
    machine = {
        "cpu": "cpu", "cpu_family_model_stepping": ["1", "2", "3"], "cores": 2, "flags": ["avx2"],
        "versions": {"tensorflow": "2"}, "time": "2000-01-01T00:00:00Z",
    }  # fmt: skip
    choices = [
        {"recompute": False, "bytes": 100 * 2**20, "median_ms": 10.0},
        {"recompute": True, "bytes": megabytes * 2**20, "median_ms": milliseconds},
        {"recompute": 512, "bytes": 50 * 2**20, "median_ms": 20.0},
    ]
    row = {"cell": "lstm", "shape": [1, 2, 3, 4], "choices": choices}
    return {"bench": "recompute", "machine": machine, "rows": [row]}


def test_a_missed_target_is_shown():
    reached = _result(35, 13.9)
    assert "| LSTM 1, 2, 3, 4 | True | 35.0 | 0.35 | 13.9 | 1.39 |" in recompute_report.markdown(
        reached
    )
    assert "<<" not in recompute_report.text(reached)
    # Only True has targets.
    assert "| 512 | 50.0 | 0.50 | 20.0 | 2.00 |" in recompute_report.markdown(reached)
    missed = recompute_report.markdown(_result(36, 14.1))
    assert "| True | 36.0 | **0.36** | 14.1 | **1.41** |" in missed
