"""The demo, in a short form: it learns, compares with Keras and draws its plot."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import subprocess
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


def test_results_come_before_samples(demo, short_run):
    printed, plot = short_run
    progress = [f"{number} of 4  {name}" for number, name in enumerate(demo.KINDS, 1)]
    parts = [*progress, "\nmodel ", f"\nPlot: {plot}\n", "\nprecision "]
    parts += [f"\n{name} writes:\n" for name in demo.KINDS]
    places = [printed.find(part) for part in parts]
    assert -1 not in places and places == sorted(places)
    for sample in re.split(r"\n\S+(?: cell)? writes:\n", printed)[1:]:
        assert len(sample.splitlines()) in (2, 3)


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


@pytest.fixture
def busy_core():
    """A core on which another process runs all the time."""
    core = min(os.sched_getaffinity(0))
    program = (
        f"import os; os.sched_setaffinity(0, [{core}])\nwhile os.getppid() == {os.getpid()}: 0"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        yield core
        assert process.poll() is None
        process.kill()


def test_half_a_core_is_enough(busy_core):
    """It takes longer there, and ends like anywhere else."""
    # Without the variable that make, or the helper, sets for it.
    program = (
        f"import os, sys; os.sched_setaffinity(0, [{busy_core}])\n"
        "del os.environ['TF_CPP_MIN_LOG_LEVEL']\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = ["-c", program, PROGRAM, "--steps", "50", "--units", "16", "--out", "none"]
    models = ["GRU cell", "LSTM"]
    # The time limit only ends a demo that hangs.
    done = run_python([*command, "--models", *models], timeout=3600, fresh=True)
    rows = table(assert_ok(done, "the demo on half a core"))
    assert list(rows) == models
    assert all(len(row) == 5 and np.isfinite(row).all() for row in rows.values())
    for note in ("cpu_feature_guard", "oneDNN"):
        assert note not in done.stderr


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


def test_a_wrong_result_is_reported(demo, monkeypatch, capsys):
    import keras

    class SwappedGates(keras.layers.LSTMCell):
        """Has the input gate where its weights have the forget gate, and the reverse."""

        def call(self, inputs, states, training=False):
            h, c = states
            gates = inputs @ self.kernel + h @ self.recurrent_kernel + self.bias
            f, i, g, o = keras.ops.split(gates, 4, axis=-1)
            c = keras.ops.sigmoid(f) * c + keras.ops.sigmoid(i) * keras.ops.tanh(g)
            h = keras.ops.sigmoid(o) * keras.ops.tanh(c)
            return h, [h, c]

    def kind(cell):
        """A kind of model with this cell on our side, and with Keras' LSTM cell on its own."""
        return lambda library, units: keras.layers.RNN(
            (cell if library is demo.layers else keras.layers.LSTMCell)(units), **demo.SEQUENCES
        )

    def diverging(units):
        return keras.layers.LSTMCell(units, activation=lambda x: x * np.nan)

    kinds = {
        "correct": kind(demo.layers.LSTMCell),
        "swapped": kind(SwappedGates),
        "diverged": kind(diverging),
    }
    monkeypatch.setattr(demo, "KINDS", kinds)
    assert demo.main(["--steps", "50", "--units", "16", "--out", "none"]) == 1
    out, err = capsys.readouterr()
    wrong = re.findall(r"^Wrong results of (\w+): .* by up to (\S+) bits .* (\S+)\.$", err, re.M)
    assert [name for name, *_ in wrong] == ["swapped", "diverged"]
    (_, swapped, bound), (_, diverged, _) = wrong
    assert float(swapped) > float(bound) == demo.LOSS_BOUND
    assert diverged == "nan"
    assert "correct writes:" in out and "swapped writes:" not in out


def test_a_loss_that_is_not_finite_is_wrong(demo):
    assert not demo.Outcome("GRU", held_out=[(10, 3.0)]).error
    assert "is nan" in demo.Outcome("GRU", held_out=[(10, np.nan)]).error


@pytest.mark.parametrize(
    "argument, value, said",
    [
        ("--steps", "45", "must be at least 46, got 45"),
        ("--units", "-3", "must be at least 1, got -3"),
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
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(SystemExit, match="2"):
        demo.main([])
    assert "pip install matplotlib" in capsys.readouterr().err
    assert demo._plot_path("none") == "none"


def test_progress(demo, capsys):
    progress = demo.Progress("label")
    for step in range(101):
        progress.show(step / 100, f"step {step}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11 and lines[-1] == "label 100%  step 100"
