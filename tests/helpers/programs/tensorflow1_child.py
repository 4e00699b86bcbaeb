"""What test_tensorflow1.py runs in processes where TensorFlow's old behaviour is switched on.

python tensorflow1_child.py second OUT CASE...   second derivatives, in loops of version 1
python tensorflow1_child.py shapes OUT           functions and layers, dims being objects
python tensorflow1_child.py session OUT          functions in a session, dims being unknown
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
if sys.argv[1] == "second":
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
elif sys.argv[1] == "shapes":
    v1.disable_v2_tensorshape()
else:
    v1.disable_v2_behavior()

import tf_blockrnn as tfb  # noqa: E402
from helpers import second_cases  # noqa: E402  after the switches
from helpers.wrapper_calls import (  # noqa: E402
    GATES,
    LAYERS,
    layer_gradient,
    sequence_arguments,
    sequence_call,
)


def second(cases: list[str]) -> dict[str, np.ndarray]:
    found = {}
    for case in cases:
        call = second_cases.Case(case)
        tensors = call.tensors()
        inputs = [v for k, v in tensors.items() if not k.startswith("cotangent")]
        cotangents = [v for k, v in tensors.items() if k.startswith("cotangent")]
        first = tf.gradients(call.call(tfb, tensors), inputs, grad_ys=cotangents)
        total = tf.add_n([second_cases.weighted(gradient) for gradient in first])
        gradients = dict(zip(tensors, tf.gradients(total, list(tensors.values())), strict=True))
        with v1.Session() as session:
            found |= {f"{case}: {k}": v for k, v in session.run(gradients).items()}
    return found


def shapes() -> dict[str, np.ndarray]:
    from tf_blockrnn import layers

    found = {name: sequence_call(tfb, name)[0].numpy() for name in GATES}
    return found | {name: layer_gradient(layers, name).numpy() for name in LAYERS}


def session() -> dict[str, np.ndarray]:
    """With a placeholder of unknown shape, and weights that are reference variables."""
    found = {}
    for name in GATES:
        given = dict(sequence_arguments(name))
        x = v1.placeholder(tf.float32, [None, None, given["x"].shape[-1]])
        weights = {
            k: v1.get_variable(f"{name}_{k}", initializer=v, use_resource=False)
            for k, v in given.items()
            if k.startswith(("w_", "b"))
        }
        lengths = tf.constant([3, 1])
        outputs = getattr(tfb, name)(**{"x": x, **weights}, lengths=lengths)[0]
        gradient = tf.gradients(tf.reduce_sum(outputs**2), weights["w_h"])[0]
        try:
            getattr(tfb, name)(**{"x": x, **weights, "w_x": tf.ones([6, 6])})
        except ValueError as error:
            found[f"{name}: said"] = np.array(str(error))
        with v1.Session() as running:
            running.run(v1.global_variables_initializer())
            value = running.run(given["x"])
            found[name], found[f"{name}: w_h"] = running.run([outputs, gradient], {x: value})
    return found


if __name__ == "__main__":
    run = {"second": lambda: second(sys.argv[3:]), "shapes": shapes, "session": session}
    np.savez(sys.argv[2], **run[sys.argv[1]]())
