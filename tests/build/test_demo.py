"""The demo, in a short form: it learns, compares with Keras and draws its plot."""

from __future__ import annotations

import importlib
import itertools
import re
import sys
import types

import numpy as np
import pytest
from helpers import tolerances
from helpers.children import ROOT, assert_ok, run_python

pytestmark = [pytest.mark.docs, pytest.mark.xdist_group("demo")]

PROGRAM = str(ROOT / "examples" / "demo.py")
UNITS, STEPS = 64, 160


@pytest.fixture(scope="module")
def demo(tfb):
    del tfb
    return importlib.import_module("examples.demo")


@pytest.fixture(scope="module")
def text(demo):
    return demo.Text(1)


@pytest.fixture(scope="module")
def bits_of_frequencies(text):
    """What a model reaches on the held-back part that knows how frequent each character is."""
    count = np.bincount(text.train, minlength=len(text.alphabet)) + 1.0
    return float(-np.log2(count / count.sum())[text.held_out].mean())


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """What the command prints, with fewer steps and units; and its plot."""
    plot = tmp_path_factory.mktemp("demo") / "plot.png"
    command = [PROGRAM, "--steps", str(STEPS), "--units", str(UNITS), "--out", str(plot)]
    return assert_ok(run_python(command, timeout=3600), "the demo"), plot


def table(printed: str) -> dict[str, list[float]]:
    """The numbers of each model.

    Bits per character, characters per second with the ops and with Keras, their ratio, and the
    difference of the losses.
    """
    rows = re.findall(r"^((?:GRU|LSTM)(?: cell)?) +(\d.*)$", printed, re.MULTILINE)
    return {name: [float(v.replace(",", "")) for v in row.split()] for name, row in rows}


def test_it_learns_more_than_frequencies(demo, short_run, bits_of_frequencies):
    rows = table(short_run[0])
    assert list(rows) == list(demo.KINDS)
    for name, (bits, ours, peer, ratio, difference) in rows.items():
        assert 0 < bits < bits_of_frequencies, name
        assert ours > 0 and peer > 0 and abs(ratio - ours / peer) < 0.01
        # Both models start from the same weights and read the same windows.
        bound = tolerances.composed_bound("float32", (demo.EMBEDDING + UNITS) * demo.WINDOW)
        assert difference < bound * np.log2(demo.COMPARED_STEPS)


def test_sessions_of_low_precision_lose_little(demo, short_run):
    printed, _ = short_run
    sessions = printed.partition("in inference sessions:\n\n")[2]
    header, *rows = sessions.splitlines()[: 1 + len(demo.PRECISIONS)]
    assert re.split("  +", header) == ["precision", *demo.KINDS]
    bits = {row.split()[0]: np.array(row.split()[1:], float) for row in rows}
    assert tuple(bits) == demo.PRECISIONS
    models = [row[0] for row in table(printed).values()]
    # The sessions compute what the models do; both numbers are rounded when they are printed.
    np.testing.assert_allclose(bits["float32"], models, rtol=0, atol=0.6e-3)
    for precision in ("bfloat16", "int8"):
        assert (bits[precision] - bits["float32"]).max() <= tolerances.LOST_BITS, precision


def test_it_draws_the_plot(short_run):
    content = short_run[1].read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 10_000


def test_the_number_of_steps_does_not_depend_on_the_clock(demo, text, monkeypatch):
    hours = itertools.count(step=3600.0)
    monkeypatch.setattr(demo, "time", types.SimpleNamespace(monotonic=lambda: next(hours)))
    settings = types.SimpleNamespace(seed=1, steps=60, units=8)
    outcome = demo.run_kind("LSTM", text, settings, demo.Progress("LSTM"))
    characters = demo.BATCH * demo.WINDOW
    # Each fifth of the steps that is not part of the comparison.
    assert [seen for seen, _ in outcome.held_out] == [48 * characters, 60 * characters]
    assert outcome.ours_per_second == demo.STEPS_PER_ROUND * characters / 3600.0
    assert not outcome.error


def test_nothing_held_out_is_seen_in_training(text):
    train, held_out = text.decode(text.train), text.decode(text.held_out)
    assert len(train) > 8 * len(held_out) > 100_000
    seen = {" ".join(p.split()) for p in train.split("\n\n")}
    # The cut may go through a paragraph: the first one of the held-back part is half of one.
    assert not seen & {" ".join(p.split()) for p in held_out.split("\n\n")[1:]}


def test_windows_go_on_from_row_to_row(demo):
    ids = np.arange(demo.BATCH * 500 + 1, dtype=np.int32)
    found = list(demo.windows(ids))
    assert len(found) == 500 // demo.WINDOW
    for window in found:
        assert window.shape == (demo.BATCH, demo.WINDOW + 1)
        assert (np.diff(window) == 1).all()
    for one, next_one in zip(found, found[1:], strict=False):
        # What was predicted last is read first.
        np.testing.assert_array_equal(one[:, -1], next_one[:, 0])


def test_a_wrong_result_is_reported(demo, monkeypatch, capsys):
    import keras

    def kind(activation):
        """A kind of model whose layer on our side has another activation than Keras'."""
        return lambda library, units: keras.layers.LSTM(
            units, activation=activation if library is demo.layers else "tanh", **demo.SEQUENCES
        )

    kinds = {"softsign": kind("softsign"), "diverged": kind(lambda x: x * np.nan)}
    monkeypatch.setattr(demo, "KINDS", kinds)
    assert demo.main(["--steps", "50", "--units", "16", "--out", "none"]) == 1
    out, err = capsys.readouterr()
    wrong = re.findall(r"^Wrong results of (\w+): .* by up to (\S+) bits .* (\S+)\.$", err, re.M)
    assert [name for name, *_ in wrong] == ["softsign", "diverged"]
    (_, different, bound), (_, diverged, _) = wrong
    assert float(different) > float(bound) == demo.LOSS_BOUND
    assert diverged == "nan"
    assert "softsign writes:" not in out


def test_a_loss_that_is_not_finite_is_wrong(demo):
    assert not demo.Outcome("GRU", held_out=[(10, 3.0)]).error
    assert "is nan" in demo.Outcome("GRU", held_out=[(10, np.nan)]).error


@pytest.mark.parametrize(
    "argument, value, said",
    [
        ("--steps", "45", "must be at least 46, got 45"),
        ("--out", "/nowhere/plot.png", "no such folder: /nowhere"),
        ("--out", ".", "is a folder: ."),
        ("--out", "plot.xyz", "must end in one of ."),
    ],
)
def test_an_argument_that_does_not_fit_is_told_at_once(demo, capsys, argument, value, said):
    with pytest.raises(SystemExit, match="2"):
        demo.main([argument, value])
    assert f"argument {argument}: {said}" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_do(demo, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(SystemExit, match="2"):
        demo.main([])
    assert "pip install matplotlib" in capsys.readouterr().err
    assert demo._plot_path("none") == "none"
