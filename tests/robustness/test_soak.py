"""The short forms of the soaks in bench/soak, and that a leak and other bits are found."""

from __future__ import annotations

import itertools
import threading

import pytest
from helpers.children import ROOT, assert_ok, run_python

from bench import tidy
from bench.soak import command, figures, loop

_MIB = 2**20


@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        ("session", 60),
        ("streams", 60),
        pytest.param("training", 16, marks=pytest.mark.types),
        pytest.param("keras", 8, marks=pytest.mark.types),
        pytest.param("jit", 8, marks=pytest.mark.xla),
    ],
)
def test_short_form(name, rounds, tmp_path):
    arguments = ["-m", "bench.soak", name, "--short", "--rounds", str(rounds)]
    result = run_python([*arguments, "--out", str(tmp_path)], cwd=ROOT, fresh=True)
    printed = assert_ok(result, f"the soak {name}")
    found = tidy.read(tmp_path / f"soak_{name}.json")
    assert "passed" in printed and found["verdict"]["passed"]
    assert [row["round"] for row in found["rows"]] == list(range(rounds + 1))
    assert (tmp_path / f"soak_{name}.png").stat().st_size > 10_000


class _Planted:
    """A soak with a leak of the kind `leak`, or with bits that change."""

    def __init__(self, leak):
        self._leak, self._kept, self._probes, self._end = leak, [], 0, threading.Event()
        # Growth is judged as a part of what the process of the tests holds.
        held = figures.now()
        self._bytes = _MIB + (held["allocated"] or 0) // 50
        self._objects = 20_000 + held["objects"] // 50

    def warm_up(self):
        self.round(0)

    def round(self, number):
        made = bytearray(self._bytes)  # also without a leak
        if self._leak == "bytes":
            self._kept.append(made)
        if self._leak == "objects":
            self._kept.extend([] for _ in range(self._objects))
        if self._leak == "threads":
            threading.Thread(target=self._end.wait).start()
        return ["other" if self._leak == "bits in a round" and number == 5 else "want"]

    def probe(self):
        self._probes += 1
        return "other" if self._leak == "bits" and self._probes == 5 else "want"

    def close(self):
        self._end.set()


@pytest.mark.parametrize(
    ("leak", "failure"),
    [
        (None, ""),
        ("bytes", "allocated grew by"),
        ("objects", "objects grew by"),
        ("threads", "threads grew by"),
        ("bits", "1 results with other bits"),
        ("bits in a round", "1 results with other bits"),
    ],
)
def test_finds_what_a_loop_leaks(leak, failure):
    soak = _Planted(leak)
    try:
        samples = loop.run(soak, loop.Plan(rounds=16), "want")
    finally:
        soak.close()
    found = loop.verdict(samples, judged=loop.JUDGED_IF_SHORT)
    assert found["passed"] is (leak is None)
    assert failure in "; ".join(found["failures"])


def _series(per_round, figure="resident", rounds=100):
    """Samples in which one figure grows, with noise of half a percent."""
    noise = itertools.cycle((0, 4, -5, 3))
    flat = dict.fromkeys(figures.NAMES, 1000) | {"wrong": 0}
    return [
        flat | {"round": n, "minutes": n / 10, figure: 1000 + per_round * n + next(noise)}
        for n in range(rounds)
    ]


@pytest.mark.parametrize("figure", loop.JUDGED)
@pytest.mark.parametrize(
    ("per_round", "of_the_peer", "passes"),
    [(0, None, True), (0.1, None, True), (0.3, None, False), (0.3, 0.2, False), (0.3, 0.4, True)],
)
def test_judges_growth_and_that_of_the_peer(figure, per_round, of_the_peer, passes):
    control = None if of_the_peer is None else _series(of_the_peer, figure)
    found = loop.verdict(_series(per_round, figure), control)
    assert found["passed"] is passes, found
    row = found["figures"][figure]
    assert row["per_round"] == pytest.approx(per_round, abs=0.05)
    assert row["growth"] == pytest.approx(50 * per_round / (1000 + 37 * per_round), abs=0.003)


def test_growth_before_the_second_quarter_is_the_warm_up():
    samples = _series(0)
    for n, sample in enumerate(samples[:25]):
        sample["resident"] -= 20 * (25 - n)
    assert loop.verdict(samples)["passed"]


def test_a_run_in_minutes_ends_and_has_enough_samples():
    samples = loop.run(_Planted(None), loop.Plan(minutes=1e-6), "want")
    assert [sample["round"] for sample in samples] == list(range(8))
    with pytest.raises(ValueError, match="samples must be 8 or more, got 7"):
        loop.growth(samples[:7], "resident")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["session", "--peer"], "session uses no TensorFlow"),
        (["jit", "--rounds", "7"], "--rounds must be 8 or more, got 7"),
        (["jit", "--rounds", "9", "--minutes", "1"], "exclude each other"),
    ],
)
def test_refuses_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert message in capsys.readouterr().err
