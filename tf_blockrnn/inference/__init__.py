"""Inference without TensorFlow: recurrent layers whose weights are packed once, on NumPy arrays.

    Session    runs sequences and steps of a stack of layers with fixed weights
    Streams    independent streams, whose steps a session computes together

Only NumPy and the libraries of this package are needed. Sources that a framework has made (layers
of Keras, some kinds of files) need that framework while a session is created.

Example:
  >>> import numpy as np
  >>> from tf_blockrnn import inference, weights
  >>> one = weights.DirectionWeights(np.full([3, 5, 4], 0.1), np.full([3, 4, 4], 0.1))
  >>> gru = weights.RecurrentWeights("gru", [weights.LayerWeights(one)], reset_after=True)
  >>> session = inference.Session(gru)
  >>> outputs, state = session.run(np.ones([2, 7, 5], np.float32))
  >>> outputs.shape, state.shape
  ((2, 7, 4), (2, 4))
"""

from tf_blockrnn.inference.session import Session
from tf_blockrnn.inference.streams import Streams

__all__ = ["Session", "Streams"]


def __dir__() -> list[str]:
    return __all__
