"""The claims of docs/gru_variants.md hold; build/test_docs.py runs its examples."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from helpers import children, tolerances, weight_stacks
from helpers.compare import assert_close
from helpers.markdown import promised, python_blocks
from helpers.weight_stacks import Stack

from tf_blockrnn import weights


def test_the_four_agree_and_the_forms_differ():
    """The page's point, in its own numbers: six equal states, then two that are not."""
    page = (children.ROOT / "docs" / "gru_variants.md").read_text(encoding="utf-8")
    same, different, *_ = map(promised, python_blocks(page))
    assert len(same) == 6 and len(set(same)) == 1
    after, before = different[:2]
    assert different[2:4] == [after, after] and before != after


def test_chung_s_update_gate_is_the_other_one_negated():
    stack = Stack("gru", reset_after=False, biases=("b_x",))
    described = weight_stacks.random_weights(stack)
    one = described.layers[0].forward
    x = weight_stacks.inputs(stack)
    h = np.zeros([x.shape[1], stack.units])
    sign = np.array([1.0, -1.0, 1.0])  # r, u, c
    w_x, w_h, b = (a * sign.reshape(3, *[1] * (a.ndim - 1)) for a in (one.w_x, one.w_h, one.b_x))
    for x_t in x:
        r, z = (1 / (1 + np.exp(-(x_t @ w_x[g] + h @ w_h[g] + b[g]))) for g in (0, 1))
        h = (1 - z) * h + z * np.tanh(x_t @ w_x[2] + (r * h) @ w_h[2] + b[2])
    (layer,) = weights.to_keras_layers(described)
    got = keras.ops.convert_to_numpy(layer(np.swapaxes(x, 0, 1)))
    assert_close(got, h, tolerances.bound("double", stack.reduction_length))


@pytest.mark.parametrize("reset_after", [True, False])
def test_when_two_biases_are_one(reset_after):
    """Those of r and z always; those of c only with reset before."""
    stack = Stack("gru", reset_after=reset_after)
    one = weight_stacks.random_weights(stack).layers[0].forward
    x = weight_stacks.inputs(stack)

    def state(moved):
        b_h = np.array(one.b_h)
        b_x = np.array(one.b_x)
        b_x[moved] += b_h[moved]
        b_h[moved] = 0
        direction = weights.DirectionWeights(one.w_x, one.w_h, b_x, b_h)
        layers = [weights.LayerWeights(direction)]
        return weight_stacks.run(weights.RecurrentWeights("gru", layers, reset_after), x).h

    bound = tolerances.bound("double", stack.reduction_length)
    assert_close(state([0, 1]), state([]), bound)
    if reset_after:
        assert np.max(np.abs(state([2]) - state([]))) > 1e-3
    else:
        assert_close(state([2]), state([]), bound)
