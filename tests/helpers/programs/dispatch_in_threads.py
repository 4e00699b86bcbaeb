"""Calls a function with dispatch in one thread while another is in a call of the same function.

TensorFlow checks the type of an argument by `isinstance`, in Python, where the first thread waits
here until the second has called. Where the type is in a cache, nothing waits.
"""

import threading
import typing

import tf_blockrnn  # noqa: F401  before TensorFlow's devices are initialized

# isort: split
import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops.ragged import ragged_tensor


@tf.__internal__.dispatch.add_dispatch_support
def pair(x, y):
    return "plain"


@tf.experimental.dispatch_for_api(pair)
def ragged_pair(x: ragged_tensor.RaggedOrDense, y: ragged_tensor.RaggedOrDense):
    return "ragged"


assert context._context is None or not context._context._initialized
check = typing._ProtocolMeta.__instancecheck__
checks, called = threading.Event(), threading.Event()
BFLOAT16 = tf.bfloat16.as_numpy_dtype
results = []


def wait_and_check(cls, instance):
    if threading.current_thread() is not threading.main_thread():
        checks.set()
        called.wait()
    return check(cls, instance)


def call(x):
    results.append(pair(x, x))
    checks.set()


typing._ProtocolMeta.__instancecheck__ = wait_and_check
ragged = tf.ragged.constant([[1.0]])
with tf.Graph().as_default():
    symbolic = tf.constant(1.0)
plain = [tf.constant(1.0), symbolic, tf.Variable(1.0), keras.Variable(1.0), [1.0], (1.0,), 1.0]
plain += [1, True, np.ones(1), np.float32(1), np.int64(1), BFLOAT16(1), tf.TensorShape([1])]
for x in plain:
    checks.clear()
    called.clear()
    thread = threading.Thread(target=call, args=[x])
    thread.start()
    checks.wait()
    assert pair(ragged, ragged) == "ragged"
    called.set()
    thread.join()
    assert results.pop() == "plain", type(x)
