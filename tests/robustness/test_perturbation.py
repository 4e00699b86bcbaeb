"""Malformed calls: none crashes, none is accepted, every message states what is wrong.

Thousands of them per op, in three modes, in child processes.
"""

from __future__ import annotations

import json

import pytest
from helpers import block_cells, children, perturbation
from helpers.programs import perturbation_child

MAX_CRASHES = 5


@pytest.mark.parametrize(
    "modes",
    [perturbation.EAGER, pytest.param(perturbation.GRAPHS, marks=pytest.mark.types)],
    ids=["eager", "in graphs"],
)
@pytest.mark.parametrize("name", block_cells.OPS)
def test_malformed_calls_are_refused(tfb, tmp_path, name, modes):
    del tfb
    op = block_cells.OPS[name]
    progress = tmp_path / "progress"
    first, crashes, problems = 0, [], []
    total = {"calls": 0, "refused": 0, "accepted": 0, "problems": 0}
    while True:
        result = children.run_python(
            [str(children.PROGRAMS / "perturbation_child.py"), name, str(first), str(progress)],
            timeout=600,
            **{perturbation.ONLY_MODES: ",".join(modes)},
        )
        if result.returncode == 0:
            outcome = json.loads(result.stdout.strip().splitlines()[-1])
            problems += outcome["problems"]
            for key, count in outcome["counts"].items():
                total[key] += count
            break
        assert progress.exists(), result.stderr[-3000:]
        number = int(progress.read_text())
        call = perturbation_child.describe(op, number)
        crashes.append(f"{call} ended with {result.returncode}: {result.stderr[-300:]}")
        first = number + 1
        if len(crashes) >= MAX_CRASHES:
            break
    assert not crashes, f"{len(crashes)} crashes:\n" + "\n".join(crashes)
    assert not problems, f"{total['problems']} of {total}:\n" + "\n".join(problems)
    # The test itself: there were calls, and legal ones among them, which were computed.
    assert total["calls"] >= 330 * len(modes), total
    assert total["accepted"] >= len(perturbation.BASES) * len(modes), total
    assert total["refused"] > 0.9 * total["calls"], total
