"""Checks docs/xla.md: its examples run, and its claims hold."""

from __future__ import annotations

import pytest
from helpers.children import ROOT
from helpers.markdown import promised, python_blocks, run_block

pytestmark = pytest.mark.docs

PAGE = (ROOT / "docs" / "xla.md").read_text(encoding="utf-8")
BLOCKS = python_blocks(PAGE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_examples_run_and_print_what_they_say(tfb, number):
    del tfb
    code = BLOCKS[number]
    assert promised(code), "an example that shows nothing"
    assert run_block(code, f"<example {number + 1} of xla.md>") == promised(code)


def test_all_code_is_run():
    assert len(BLOCKS) >= 4
    assert PAGE.count("```") == 2 * len(BLOCKS)


def test_an_array_whose_size_depends_on_data_is_refused_with_the_way_out(tf, tfb):
    w_x, w_h = tf.ones([4, 9]), tf.ones([3, 9])

    @tf.function(jit_compile=True)
    def call(x, keep):
        return tfb.gru(tf.boolean_mask(x, keep), w_x, w_h, tf.zeros([9]))[0]

    with pytest.raises(tf.errors.UnimplementedError, match="pad it, and pass a mask"):
        call(tf.ones([2, 5, 4]), tf.constant([True, False]))


def test_a_shape_that_is_not_right_is_an_error_of_tracing_and_a_length_one_of_the_run(tf, tfb):
    w_x, w_h = tf.ones([4, 9]), tf.ones([3, 9])

    @tf.function(jit_compile=True)
    def call(x, lengths):
        return tfb.gru(x, w_x, w_h, tf.zeros([9]), lengths=lengths)[0]

    x = tf.ones([2, 5, 4])
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="w_x"):
        call.get_concrete_function(tf.ones([2, 5, 7]), tf.constant([5, 5]))
    concrete = call.get_concrete_function(x, tf.constant([5, 5]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="lengths"):
        concrete(x, tf.constant([5, 6]))
