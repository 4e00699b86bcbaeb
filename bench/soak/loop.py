"""The loop of a soak, which takes samples, and the verdict on them."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from bench.soak import figures

# At most as many, however long the soak runs.
_SAMPLES = 240
_LEAST_SAMPLES = 8
# The largest growth of the median from the second to the last quarter of a soak.
FLAT = 0.01
JUDGED = ("resident", "objects", "threads")
# Of some dozen rounds, after which the pages that malloc keeps have not settled.
JUDGED_IF_SHORT = ("allocated", "objects", "threads")
# Growth that is not judged: scratch memory of one more thread that was in a call at that moment.
_NOISE = {"allocated": 2**20}


class Soak(Protocol):
    """What runs in the loop. Each call draws from the same bounded set of shapes."""

    def warm_up(self) -> None:
        """Reaches every state of which memory is kept: traces, largest shapes, all threads."""

    def round(self, number: int) -> Iterable[str]:
        """Work that depends on `number` alone; the digests of the probe that it made on the way."""

    def probe(self) -> str:
        """The digest of fixed calls."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long a soak runs: minutes, or a number of rounds."""

    minutes: float | None = None
    rounds: int | None = None

    def done(self, minutes: float, rounds: int) -> float:
        """The share that is done."""
        return rounds / self.rounds if self.rounds else minutes / self.minutes


def run(
    soak: Soak, plan: Plan, want: str, note: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Runs a soak.

    want: the digest of the probe in one thread.

    Returns:
      The samples: time in minutes, rounds so far, the process's figures, and the number of digests
      since the previous sample that were not `want`.
    """
    soak.warm_up()
    start, rounds, samples, wrong = time.monotonic(), 0, [], 0
    while True:
        wrong += soak.probe() != want
        minutes = (time.monotonic() - start) / 60
        samples.append({"minutes": minutes, "round": rounds, **figures.now(), "wrong": wrong})
        note(f"round {rounds}, {samples[-1]['resident'] / 2**20:.1f} MiB")
        done, now, wrong = plan.done(minutes, rounds), 0.0, 0
        if done >= 1 and len(samples) >= _LEAST_SAMPLES:
            return samples
        while now < min(1, done + 1 / _SAMPLES):
            wrong += sum(digest != want for digest in soak.round(rounds))
            rounds += 1
            now = plan.done((time.monotonic() - start) / 60, rounds)


@dataclasses.dataclass(frozen=True)
class Growth:
    """The medians of the second and of the last quarter of the samples, and their difference."""

    before: float
    after: float
    per_round: float

    @property
    def share(self) -> float:
        return self.after / self.before - 1


def growth(samples: Sequence[Mapping[str, Any]], figure: str) -> Growth | None:
    """Of one figure; None where the system does not report it.

    Raises:
      ValueError: there are fewer than 8 samples.
    """
    if len(samples) < _LEAST_SAMPLES:
        raise ValueError(f"growth: samples must be {_LEAST_SAMPLES} or more, got {len(samples)}")
    if samples[0][figure] is None:
        return None
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    before, after = (statistics.median(s[figure] for s in part) for part in (second, last))
    rounds = statistics.median(s["round"] for s in last)
    rounds -= statistics.median(s["round"] for s in second)
    return Growth(before, after, (after - before) / rounds)


def verdict(
    samples: Sequence[Mapping[str, Any]],
    control: Sequence[Mapping[str, Any]] | None = None,
    judged: Sequence[str] = JUDGED,
) -> dict[str, Any]:
    """Whether a soak has passed, and why not.

    It passes if all digests are right and each judged figure is flat or, where there are samples of
    the peer, grows by no more than the peer's in a round. All figures are in the answer.
    """
    found: dict[str, Any] = {"passed": True, "failures": [], "figures": {}}
    if wrong := sum(sample["wrong"] for sample in samples):
        found["failures"].append(f"{wrong} results with other bits")
    for figure in figures.NAMES:
        ours = growth(samples, figure)
        if ours is None:
            continue
        row = {"start": samples[0][figure], **dataclasses.asdict(ours), "end": samples[-1][figure]}
        row["growth"] = ours.share
        most = 0.0
        if control is not None:
            row["peer_per_round"] = most = growth(control, figure).per_round
        found["figures"][figure] = row
        grown = ours.share > FLAT and ours.after - ours.before > _NOISE.get(figure, 0)
        if figure in judged and grown and ours.per_round > most:
            limit = f"; the peer grew by {most:.4g} a round" if control is not None else ""
            found["failures"].append(
                f"{figure} grew by {ours.share:.1%}, {ours.per_round:.4g} a round{limit}"
            )
    found["passed"] = not found["failures"]
    return found
