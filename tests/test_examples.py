"""The programs in examples/ run and show what they say."""

from __future__ import annotations

import re

from children import ROOT, assert_ok, run_python


def test_cudnn_on_cpu():
    """TensorFlow's error first, then outputs, then a loss that falls."""
    program = str(ROOT / "examples" / "cudnn_on_cpu.py")
    shown = assert_ok(run_python([program], CUDA_VISIBLE_DEVICES="-1"), "cudnn_on_cpu.py")
    alone, _, together = shown.partition("With tf_blockrnn")
    assert "No OpKernel was registered to support Op 'CudnnRNNV3'" in alone
    assert "outputs (3, 6, 1)" in together
    # The row has 4 steps.
    assert re.search(r"( [+-]\d\.\d{4}){4} \+0\.0000 \+0\.0000\n", together)
    losses = [float(loss) for loss in re.findall(r"loss (\S+)", together)]
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
