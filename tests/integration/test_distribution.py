"""The layers under tf.distribute: the weights of one device, whatever the strategy.

Each strategy runs in processes of its own: logical devices and clusters are set up once per
process.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers import children, tolerances
from helpers.compare import assert_close
from helpers.programs import distribution_child as child

pytestmark = pytest.mark.types

PROGRAM = str(children.PROGRAMS / "distribution_child.py")
TIMEOUT = 240  # seconds; a worker that lost the other would wait for ever
# Each step of the optimizer reads the weights of the one before.
REDUCTION = (2 * child.UNITS + child.UNITS) * 3 * child.STEPS * child.BATCHES
BOUND = tolerances.composed_bound("float32", REDUCTION)


@pytest.fixture(scope="module")
def wanted(tfb):
    del tfb
    return child.single_device()


def assert_same_weights(file, ways, wanted):
    with np.load(file) as found:
        assert {name.split("/")[0] for name in found} == set(ways)
        for way in ways:
            for i, want in enumerate(wanted):
                assert_close(found[f"{way}/{i}"], want, BOUND, f"{way}, weight {i}")


def test_training_moves_the_weights(wanted):
    """Otherwise the other tests would compare untrained weights."""
    for before, after in zip(child.model().get_weights(), wanted, strict=True):
        assert np.abs(after - before).max() > 1e-4


def test_mirrored(wanted, tmp_path):
    file = tmp_path / "mirrored.npz"
    result = children.run_python([PROGRAM, "mirrored", str(file)], timeout=TIMEOUT)
    children.assert_ok(result, "training on two devices")
    assert_same_weights(file, ["fit", "loop", "loop, XLA", "fit on one, XLA"], wanted)


def test_two_workers(wanted, tmp_path):
    addresses = [f"127.0.0.1:{port}" for port in child.free_ports(2)]
    files = [tmp_path / f"worker{i}.npz" for i in range(2)]
    logs = [open(tmp_path / f"worker{i}.log", "w+") for i in range(2)]
    workers = [
        subprocess.Popen(
            [sys.executable, PROGRAM, "worker", str(file)],
            env=children.environment(
                TF_CONFIG=json.dumps(
                    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}}
                )
            ),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        for i, (file, log) in enumerate(zip(files, logs, strict=True))
    ]
    try:
        codes = [worker.wait(TIMEOUT) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    texts = []
    for log in logs:
        log.seek(0)
        texts.append(log.read()[-3000:])
        log.close()
    assert codes == [0, 0], "\n".join(texts)
    for file in files:
        assert_same_weights(file, ["fit", "loop"], wanted)


def test_parameter_server(wanted, tmp_path):
    file = tmp_path / "parameter_server.npz"
    result = children.run_python([PROGRAM, "parameter_server", str(file)], timeout=TIMEOUT)
    children.assert_ok(result, "training with a parameter server")
    assert_same_weights(file, ["loop"], wanted)
