"""The programs in examples/ run and show what they say."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers import tolerances
from helpers.children import ROOT, assert_ok, run_python

pytestmark = pytest.mark.docs


def run(name: str, *arguments: str) -> str:
    """What an example shows; the package is found as if it were installed."""
    result = run_python([str(ROOT / "examples" / name), *arguments], CUDA_VISIBLE_DEVICES="-1")
    return assert_ok(result, name)


def numbers(pattern: str, shown: str, count: int) -> list[float]:
    """All numbers that a pattern's group matches; there must be so many."""
    found = [float(number) for number in re.findall(pattern, shown, re.MULTILINE)]
    assert len(found) == count, shown
    return found


def test_cudnn_on_cpu():
    """TensorFlow's error first, then outputs, then a loss that falls."""
    shown = run("cudnn_on_cpu.py")
    alone, _, together = shown.partition("With tf_blockrnn")
    assert "No OpKernel was registered to support Op 'CudnnRNNV3'" in alone
    assert "outputs (3, 6, 1)" in together
    # The row has 4 steps.
    assert re.search(r"( [+-]\d\.\d{4}){4} \+0\.0000 \+0\.0000\n", together)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", together)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_vowels():
    """Needs the series of aeon; the example describes how to get them."""
    shown = run("vowels.py", "--short")
    assert "270 series to train, 370 to test, 7 to 29 frames" in shown
    assert "On the fused ops: True" in shown
    (accuracy,) = numbers(r"Test accuracy: ([\d.]+)%", shown, 1)
    assert accuracy / 100 > tolerances.VOWELS_ACCURACY
    # The frozen models: float32 computes the same, and fewer bits cost little.
    full, *low = numbers(r"^(?:float32|bfloat16|int8) +([\d.]+)%$", shown, 3)
    assert abs(full - accuracy) < 0.06
    assert (full - min(low)) / 100 <= tolerances.LOST_ACCURACY


def test_streaming():
    """Chunks of every size give the same as the complete sequence."""
    shown = run("streaming.py", "--short")
    assert len(re.findall(r"median [\d.]+ ms", shown)) == 3
    bound = tolerances.bound("float", reduction_length=200 * (128 + 128))
    assert max(numbers(r"largest difference (\S+)", shown, 3)) < bound


def test_ship_model():
    """Converted, trained on, and loaded without the package."""
    shown = run("ship_model.py", "--short")
    assert re.search(r"bidirectional +tf_blockrnn\.layers\.lstm\.LSTM\n", shown)
    assert re.search(r"gru +tf_blockrnn\.layers\.gru\.GRU\n", shown)
    bound = tolerances.bound("float", reduction_length=2 * 20 * (2 * 16 + 16))
    assert max(numbers(r"differ by ([\d.e+-]+)", shown, 2)) < bound
    first, last = re.search(r"loss (\S+), then (\S+)", shown).groups()
    assert float(last) < float(first)


def test_distributed():
    """Two devices and two machines end with the weights of one device."""
    shown = run("distributed.py", "--short")
    losses = re.findall(r"losses (\S+) (\S+)", shown)
    assert len(losses) == 3
    assert all(float(last) < float(first) for first, last in losses)
    # Eight steps of the optimizer, each on the weights of the one before.
    bound = tolerances.bound("float", reduction_length=8 * 15 * (2 + 32), backward=True)
    assert max(numbers(r"differ from those of one device by (\S+)", shown, 2)) < bound


def test_packed_text():
    """All three ways learn, packing with the least padding; packed text is read as padded text."""
    shown = run("packed_text.py", "--short")
    rows = re.findall(
        r"^(\w+) +([\d.]+)% +\d+ +[\d.]+  ([\d.]+) to ([\d.]+), ([\d.]+)$", shown, re.MULTILINE
    )
    assert [row[0] for row in rows] == ["padding", "buckets", "packing"]
    padding, first, last, held_out = np.array([row[1:] for row in rows], float).T
    assert padding[2] < padding[1] < padding[0]
    assert (last < first).all() and (held_out < first).all()
    (difference,) = numbers(r"differs by (\S+)", shown, 1)
    # The means of as many terms, of which each is the end of a recurrence.
    assert abs(difference) < tolerances.composed_bound("float", 512 * (32 + 32))
