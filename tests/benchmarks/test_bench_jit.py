"""The bench of compiled programs: what it measures, what it refuses, how it shows the result."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
from helpers.children import ROOT, assert_ok, run_python

from bench import jit, jit_report, shapes


def test_a_quick_run_measures_all_contenders(tmp_path):
    arguments = ["-m", "bench", "jit", "--quick", "--only", "lstm", "--out", str(tmp_path)]
    printed = assert_ok(run_python(arguments, timeout=240, cwd=ROOT), "bench")
    result = json.loads((tmp_path / "jit.json").read_text())
    assert [(row["part"], row["kind"]) for row in result["rows"]] == [
        ("calls", "infer"), ("calls", "train"), ("fit", "train"),
    ]  # fmt: skip
    for row in result["rows"]:
        assert tuple(row["ways"]) == (jit.MODELS if row["part"] == "fit" else jit.CALLS)
        assert all(way["median_ms"] > 0 for way in row["ways"].values())
        assert tuple(row["shape"]) == shapes.SEQUENCE_SHAPES_QUICK[0]
    assert "LSTM inference 1, 5, 8, 8" in printed
    assert "Keras with XLA over ours with XLA" in printed


def test_a_way_of_calling_that_computes_something_else_is_refused(tf):
    ways = {name: lambda: [tf.ones([2])] for name in (jit.EAGER, jit.CONCRETE)}
    jit._compare_results(ways)
    ways[jit.FUNCTION] = lambda: [tf.constant([1.0, 1.1])]
    with pytest.raises(AssertionError, match="tf.function"):
        jit._compare_results(ways)


def test_a_model_that_keras_does_not_compile_is_refused():
    class NoXla(keras.layers.LSTM):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.supports_jit = False

    layers = type("layers", (), {"LSTM": NoXla})
    case = shapes.Case("lstm", "train", 1, 2, 3, 4)
    assert jit._Model(layers, case, jit_compile=False)
    with (
        pytest.warns(UserWarning, match="jit_compile"),
        pytest.raises(RuntimeError, match="does not compile with jit_compile=True"),
    ):
        jit._Model(layers, case, jit_compile=True)


def test_steps_of_fit_are_timed_without_its_start():
    case = shapes.Case("gru", "train", 2, 3, 4, 5)
    model = jit._Model(keras.layers, case, jit_compile=False)
    assert np.isfinite(model.first_loss())
    times = model.fit(3, 2)
    assert len(times) == 3 and min(times) > 0


def _result(**medians: float) -> dict:
    """A made-up result: 1 ms for each contender that is not given."""

    def ways(names: tuple[str, ...]) -> dict:
        return {name: {"median_ms": medians.get(name, 1.0)} for name in names}

    call = {"part": "calls", "cell": "lstm", "kind": "infer", "shape": [1, 10, 64, 64]}
    fit = {"part": "fit", "cell": "gru", "kind": "train", "shape": [2, 3, 4, 5]}
    machine = {
        "cpu": "cpu", "cpu_family_model_stepping": ["1", "2", "3"], "cores": 2, "flags": ["avx2"],
        "versions": {"tensorflow": "2", "keras": "3", "torch": "2"},
        "time": "2000-01-01T00:00:00Z",
    }  # fmt: skip
    rows = [call | {"ways": ways(jit.CALLS)}, fit | {"ways": ways(jit.MODELS)}]
    return {"bench": "jit", "machine": machine, "rows": rows}


def test_a_missed_target_of_a_call_is_shown_as_missed():
    reached, missed = (_result(**{jit.CONCRETE_XLA: ms}) for ms in (0.74, 0.76))
    assert "| 0.74 (target 0.75) |" in jit_report.markdown(reached)
    assert "| **0.76 (target 0.75)** |" in jit_report.markdown(missed)
    assert "<< 0.76" in jit_report.text(missed) and "<<" not in jit_report.text(
        _result(**{jit.CONCRETE_XLA: 0.74, jit.KERAS_XLA: 2.0})
    )
    for result in (reached, missed):
        result["rows"][0]["shape"] = [1, 1, 128, 128]  # has no target but to be no slower
        assert "(target 0.75)" not in jit_report.markdown(result)
        assert "**0.7" not in jit_report.markdown(result)


def test_a_model_that_xla_makes_slower_is_shown():
    page = jit_report.markdown(_result(**{jit.OURS_XLA: 1.25, jit.KERAS_XLA: 2.0}))
    assert "| GRU 2, 3, 4, 5 | 1.00 | 1.25 | 1.00 | 2.00 | **0.80** | 1.60 |" in page
    assert "geometric mean 1.60 (target 1.5, reached), lowest 1.60" in page
    assert "(target 1.5, missed)" in jit_report.markdown(_result(**{jit.OURS_XLA: 1.25}))
    assert "TensorFlow 2, Keras 3; 2000-01-01" in page  # PyTorch takes no part


def test_a_result_of_calls_alone_has_a_page():
    result = _result()
    del result["rows"][1]
    assert "`fit`" not in jit_report.markdown(result)
    assert "a step of fit" not in jit_report.text(result)
