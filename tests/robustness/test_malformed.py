"""Malformed calls: none crashes, none is accepted, every message states what is wrong.

Hundreds of them for each op, in child processes.
"""

from __future__ import annotations

import itertools
import json

import pytest
import tensorflow as tf
from helpers import children, legal_calls, malformed, op_table, reproducers
from helpers.cudnn_ops import Call
from helpers.programs import malformed_child
from helpers.reference.stack import Network

MAX_CRASHES = 5
CHILD = str(children.PROGRAMS / "malformed_child.py")
modes = pytest.mark.parametrize(
    "modes",
    [malformed.EAGER, pytest.param(malformed.GRAPHS, marks=pytest.mark.types)],
    ids=["eager", "in graphs"],
)


def _made(what, modes, tmp_path):
    """Counts of a child's calls, none of which went wrong; after a crash another child goes on."""
    progress, modes = tmp_path / "progress", ",".join(modes)
    first, crashes = 0, []
    total, problems = dict.fromkeys(("calls", "refused", "accepted", "problems"), 0), []
    while len(crashes) < MAX_CRASHES:
        result = children.run_python([CHILD, what, modes, str(first), str(progress)])
        if result.returncode == 0:
            outcome = json.loads(result.stdout.strip().splitlines()[-1])
            problems += outcome["problems"]
            for key, count in outcome["counts"].items():
                total[key] += count
            break
        assert progress.exists() and progress.read_text(), result.stderr[-3000:]
        number = int(progress.read_text())
        call = next(itertools.islice(malformed_child.made_calls(what, modes), number, None))
        crashes.append(f"{call} ended with {result.returncode}: {result.stderr[-300:]}")
        first = number + 1
    assert not crashes, f"{len(crashes)} crashes:\n" + "\n".join(crashes)
    assert not problems, f"{total['problems']} of {total}:\n" + "\n".join(problems)
    return total


@modes
@pytest.mark.parametrize("op", op_table.OPS)
def test_malformed_calls_are_refused(tfb, tmp_path, op, modes):
    del tfb
    total = _made(op, modes, tmp_path)
    # The test itself: there were calls, and legal ones among them, which were computed.
    bases = len(malformed.bases(op_table.OPS[op]))
    assert total["calls"] >= 100 * bases, total
    assert total["accepted"] >= bases, total
    assert total["refused"] > 0.7 * total["calls"], total


@modes
def test_reproducers_are_refused(tfb, tmp_path, modes):
    """Public reports of crashes in TensorFlow's ops; their messages are checked as well."""
    del tfb
    for name, call in reproducers.REPRODUCERS.items():
        assert legal_calls.meaning(call) is None, f"{name} is legal"
    total = _made("reproducers", modes, tmp_path)
    assert total["calls"] == total["refused"] >= len(reproducers.REPRODUCERS) * len(modes), total


def test_params_of_the_wrong_size_say_what_they_are_made_of(tfb):
    call = Call(Network("lstm", 2, 2, 3, 4, 2))
    for raw_ops in (tfb.raw_ops, tf.raw_ops):
        tensors = call.tensors(call.random("float"))
        tensors["params"] = tensors["params"][1:]
        size = call.net.params_size()
        with pytest.raises(tf.errors.InvalidArgumentError) as error:
            call.forward(raw_ops, tensors)
        for part in (f"[{size}]", f"got [{size - 1}]", "H = 4", "P = 2", "I = 3", "2*2"):
            assert part in error.value.message, (part, error.value.message)
