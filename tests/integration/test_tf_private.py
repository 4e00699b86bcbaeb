"""A test for each private name of TensorFlow that the package uses: what a change of it breaks."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tensorflow as tf
from helpers.children import PROGRAMS, assert_ok, run_python

from tf_blockrnn import _tf_private

pytestmark = pytest.mark.types


def test_every_function_has_its_test():
    functions = {name for name, value in vars(_tf_private).items() if inspect.isfunction(value)}
    tested = {name for name in functions if not name.startswith("_")}
    assert {f"test_{name}" for name in tested} <= set(globals())


@tf.custom_gradient
def _two_outputs(x):
    """Its gradient puts what it gets into `_two_outputs.cotangents`."""

    def gradient(*cotangents):
        _two_outputs.cotangents = cotangents
        return cotangents[0]

    return (x, 2 * x), gradient


def test_eager_device():
    """Else zeros of one device would be given to calls on another, which copy them each time."""
    assert _tf_private.eager_device() != "/job:localhost/replica:0/task:0/device:CPU:0"
    with tf.device("/CPU:0"):
        assert _tf_private.eager_device().endswith("/device:CPU:0")


def test_cached_zeros():
    """Else the first gradient takes the slow path, which is that for cotangents of the gates."""
    x = tf.ones([2, 3])
    with tf.GradientTape() as tape:
        tape.watch(x)
        used, _ = _two_outputs(x)
    tape.gradient(used, x)
    _, unused = _two_outputs.cotangents
    assert _tf_private.cached_zeros(unused) is unused
    assert _tf_private.cached_zeros(tf.zeros([2, 3])) is unused
    assert _tf_private.cached_zeros(tf.zeros([5, 7, 1])) is None


def test_may_be_recorded():
    """Else training saves nothing for its gradient, or inference saves all."""
    assert not _tf_private.may_be_recorded()
    with tf.GradientTape() as tape:
        assert _tf_private.may_be_recorded()
        with tape.stop_recording():
            assert not _tf_private.may_be_recorded()
    with tf.autodiff.ForwardAccumulator(tf.ones([]), tf.ones([])):
        assert _tf_private.may_be_recorded()


def test_stop_recording():
    """Else persistent tapes build functions for the gradients of loops that nobody asks for."""
    x = tf.ones([])
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        outer.watch(x), inner.watch(x)
        with _tf_private.stop_recording():
            y = 2 * x
    assert inner.gradient(y, x) is None and outer.gradient(y, x) is None


def test_is_watched():
    """Else a derivative by a cotangent of zeros is None."""
    zeros = tf.zeros([2])
    assert not _tf_private.is_watched(zeros)
    with tf.GradientTape() as tape:
        assert not _tf_private.is_watched(zeros)
        tape.watch(zeros)
        assert _tf_private.is_watched(zeros)
        with tape.stop_recording():
            assert not _tf_private.is_watched(zeros)
    with tf.autodiff.ForwardAccumulator(zeros, tf.ones([2])):
        assert _tf_private.is_watched(zeros)
        assert not _tf_private.is_watched(tf.zeros([2]))


def test_skipped_inputs(tfb, monkeypatch):
    """Else gradients of weights are computed where only that of x is asked for."""
    found, skipped_inputs = [], _tf_private.skipped_inputs
    monkeypatch.setattr(
        _tf_private, "skipped_inputs", lambda op: found.append(skipped_inputs(op)) or found[-1]
    )
    x = tf.zeros([1, 2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tfb.gru_block_cell(
            x, tf.zeros([3, 2]), tf.zeros([3, 1]), tf.zeros([2]), tf.zeros([1]),
            state=tf.zeros([1, 1]))  # fmt: skip
    tape.gradient(y.h, x)
    assert found and all(set(skipped) == {1, 2, 3, 4, 5} for skipped in found)


def test_in_gradient_of_function():
    """Else a persistent tape around a tf.function takes minutes to trace its gradient."""
    found = []

    @tf.custom_gradient
    def identity(x):
        def gradient(cotangent):
            found.append(_tf_private.in_gradient_of_function())
            return cotangent

        return tf.identity(x), gradient

    function, x = tf.function(identity), tf.ones([])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    tape.gradient(y, x)
    assert found and all(found)
    found.clear()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = identity(x)
    tape.gradient(y, x)
    assert found == [False]


def test_with_gradient():
    """Else XLA refuses second derivatives of functions that are called in a loop."""

    @tf.function
    def gradients(x, y):
        product = tf.cond(x > 0, lambda: x * y, lambda: x)
        (product,) = _tf_private.with_gradient(
            [product], [x, y], lambda sources, cotangents: [sources[1] + cotangents[0], None]
        )
        return tf.gradients(product, [x, y], grad_ys=tf.constant(5.0))

    by_x, by_y = gradients(tf.constant(2.0), tf.constant(3.0))
    assert by_x.numpy() == 3 + 5
    assert by_y is None


@pytest.mark.parametrize("jit", [False, True])
def test_in_xla_graph(jit):
    """Else a program of XLA saves what no gradient needs, or fails where the library is missing."""
    found = []

    @tf.function(jit_compile=jit)
    def function(x):
        found.append(_tf_private.in_xla_graph())
        return tf.cond(x > 0, lambda: inner(x), lambda: x)

    def inner(x):
        found.append(_tf_private.in_xla_graph())
        return 2 * x

    function(tf.ones([]))
    assert set(found) == {jit} and len(found) > 1


def test_update_slice():
    """Else functions that are compiled have no third derivatives, nor forward mode over a tape."""
    x = tf.constant([1.0, 2.0, 3.0, 4.0])
    run = tf.function(lambda x: _tf_private.update_slice(x, x[:2], [1]), jit_compile=True)
    assert run(x).numpy().tolist() == [1, 1, 2, 4]


def test_writes_saved_model(tmp_path):
    """Else a SavedModel of tf_keras' plain layers holds ops of this package."""
    found = []

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([])])
        def call(self, x):
            found.append(_tf_private.writes_saved_model())
            return x

    tf.saved_model.save(Module(), str(tmp_path / "model"))
    assert found[-1] and not _tf_private.writes_saved_model()


def test_op_def():
    """Else nothing works: gradients find tensors by the names in the op's definition."""
    found = _tf_private.op_def("BlockRNN>GRUBlockCell")
    assert [argument.name for argument in found.output_arg] == ["r", "u", "c", "h"]


def test_run_in_any_order(tfb):
    """Else the two directions of a stack in a tf.function run one after another."""

    @tf.function
    def function(x):
        h = tf.zeros([1, 1, 2])
        params = tf.zeros([56])
        return [
            tfb.raw_ops.CudnnRNN(input=x, input_h=h, input_c=h, params=params).output
            for _ in range(2)
        ]

    graph = function.get_concrete_function(tf.zeros([4, 1, 3])).graph
    ops = [op for op in graph.get_operations() if op.type == "BlockRNN>CudnnRNN"]
    assert len(ops) == 2 and not any(op.control_inputs for op in ops)


def test_hide_from_autograph(tfb, capfd):
    """Else the first call of each op in a tf.function warns that its source cannot be read."""
    tf.autograph.set_verbosity(0)

    @tf.function
    def function(x):
        w, b = tf.zeros([2, 2]), tf.zeros([2])
        gru = {"w_ru": w, "w_c": w[:, :1], "b_ru": b, "b_c": b[:1]}
        with tf.GradientTape() as tape:
            tape.watch(x)
            h = tfb.raw_ops.GRUBlockCell(x=x, h_prev=x, **gru).h
            h = tfb.gru_block_cell(h, **gru, state=x)[0]
            h = tfb.lstm_block_cell(h, tf.zeros([2, 4]), tf.zeros([4]), state=(x, x))[0]
        return tape.gradient(h, x)

    function(tf.zeros([1, 1]))
    assert "AutoGraph" not in capfd.readouterr().err

    @tf.function
    def wrong(x):
        return tfb.lstm(x, tf.zeros([2, 4]), tf.zeros([1, 4]), tf.zeros([4]))

    # Two stars: what was not converted.
    with pytest.raises(ValueError, match=r"arguments\.py\", line \d+, in call  \*\*"):
        wrong(tf.zeros([1, 1, 1]))


def test_result_type(tfb):
    """Else results are of the type BlockRNN_GRUBlockCell; their fields are the same."""
    zeros = np.zeros([2, 1], np.float32)
    made = tfb.raw_ops.GRUBlockCell(
        x=zeros, h_prev=zeros, w_ru=tf.zeros([2, 2]), w_c=tf.zeros([2, 1]), b_ru=tf.zeros([2]),
        b_c=tf.zeros([1]))  # fmt: skip
    assert type(made).__name__ == "GRUBlockCell" and type(made).__module__ == "tf_blockrnn.raw_ops"


def test_fill_dispatch_caches():
    """Else a call may read the arguments of a call in another thread, which may be freed."""
    assert_ok(run_python([str(PROGRAMS / "dispatch_in_threads.py")]), "the program")
