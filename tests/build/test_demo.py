"""The demo, in a short form: it learns, compares with Keras and draws its plot."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re

import numpy as np
import pytest
from helpers import tolerances
from helpers.children import ROOT, run_python

pytestmark = [pytest.mark.docs, pytest.mark.xdist_group("demo")]

UNITS = 64


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
def short_run(demo, bits_of_frequencies, tmp_path_factory):
    """The command as a person gives it, with fewer steps; its process and its plot."""
    plot = tmp_path_factory.mktemp("demo") / "plot.png"
    command = [str(ROOT / "examples" / "demo.py"), "--steps", "200", "--seconds", "240"]
    command += ["--units", str(UNITS), "--goal", str(bits_of_frequencies), "--out", str(plot)]
    return run_python(command, timeout=300), plot


def test_it_learns_more_than_frequencies(demo, short_run, bits_of_frequencies):
    done, _ = short_run
    assert done.returncode == 0, done.stdout + done.stderr
    # model, bits per character, characters per second here and with Keras' own, ratio, difference
    rows = dict(re.findall(r"^((?:GRU|LSTM)(?: cell)?) +(\d.*)$", done.stdout, re.MULTILINE))
    assert set(rows) == {kind.name for kind in demo.KINDS}
    for name, row in rows.items():
        bits, ours, peer, ratio, difference = (float(v.replace(",", "")) for v in row.split())
        assert 0 < bits < bits_of_frequencies, name
        assert ours > 0 and peer > 0 and abs(ratio - ours / peer) < 0.01
        # Both models start from the same weights and read the same windows.
        bound = tolerances.composed_bound("float32", (demo.EMBEDDING + UNITS) * demo.WINDOW)
        assert difference < bound * np.log2(200)
        assert f"{name} writes:" in done.stdout


def test_sessions_of_low_precision_lose_little(demo, short_run):
    done, _ = short_run
    table = done.stdout.partition("in inference sessions:\n\n")[2]
    header, *rows = table.splitlines()[: 1 + len(demo.PRECISIONS)]
    assert re.split("  +", header) == ["precision", *(kind.name for kind in demo.KINDS)]
    bits = {row.split()[0]: np.array(row.split()[1:], float) for row in rows}
    assert tuple(bits) == demo.PRECISIONS
    models = re.findall(r"^(?:GRU|LSTM)(?: cell)? +(\d\.\d{3}) ", done.stdout, re.MULTILINE)
    # The sessions compute what the models do; both numbers are rounded when they are printed.
    np.testing.assert_allclose(bits["float32"], np.array(models, float), rtol=0, atol=0.6e-3)
    for precision in ("bfloat16", "int8"):
        assert (bits[precision] - bits["float32"]).max() <= tolerances.LOST_BITS, precision


def test_it_draws_the_plot(short_run):
    done, plot = short_run
    assert str(plot) in done.stdout
    content = plot.read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 10_000


def test_nothing_held_out_is_seen_in_training(text):
    train, held_out = text.decode(text.train), text.decode(text.held_out)
    assert len(train) > 8 * len(held_out) > 100_000
    seen = {" ".join(p.split()) for p in train.split("\n\n")}
    # The cut may go through a paragraph: the first one of the held-back part is half of one.
    assert not seen & {" ".join(p.split()) for p in held_out.split("\n\n")[1:]}


def test_text_depends_on_the_seed_alone(demo, text):
    np.testing.assert_array_equal(demo.Text(1).train, text.train)
    assert not np.array_equal(demo.Text(2).train, text.train)


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


def test_a_missed_goal_is_told(demo, capsys):
    outcome = demo.Outcome("GRU", 2.0, 1.0, held_out=[(0, 9.0), (10, 3.0)], sample="text")
    assert demo.report([outcome], 3.1)
    assert "Not below" not in capsys.readouterr().out
    assert not demo.report([outcome], 3.0)
    assert "Not below the goal of 3.0 bits per character: GRU" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argument, value, said",
    [
        ("--steps", "0", "must be at least 1, got 0"),
        ("--units", "-3", "must be at least 1, got -3"),
        ("--seconds", "0", "must be at least 1, got 0"),
        ("--seed", "-1", "must be at least 0, got -1"),
        ("--units", "many", "invalid integer value: 'many'"),
        ("--out", "/nowhere/plot.png", "no such folder: /nowhere"),
        ("--out", ".", "is a folder: ."),
        ("--out", "plot", "must end in one of ."),
        ("--out", "plot.xyz", "must end in one of ."),
    ],
)
def test_an_argument_that_does_not_fit_is_told_at_once(demo, capsys, argument, value, said):
    with pytest.raises(SystemExit, match="2"):
        demo.main([argument, value])
    assert f"argument {argument}: {said}" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["none", "plot.png", "plot.PDF"])
def test_plots_that_fit_are_taken(demo, path):
    assert demo._plot_path(path) == path


def test_without_matplotlib_it_says_what_to_do(demo, capsys, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    assert demo.main([]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err


def test_progress_bar(demo):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, separator in ((Terminal(), "\r"), (io.StringIO(), "\n")):
        bar = demo.Progress("label", stream)
        for step in range(101):
            bar.show(step / 100, f"step {step}")
        bar.done()
        lines = stream.getvalue().strip().split(separator)
        assert len(lines) == (101 if separator == "\r" else 11)
        assert "100%" in lines[-1] and "#" * 24 in lines[-1] and "step 100" in lines[-1]
