"""All that the package uses of TensorFlow beyond its public interface, each in one function.

A release of TensorFlow may change any of it. `tests/integration/test_tf_private.py` has a test for
each function, which names what breaks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import context, record
from tensorflow.python.eager.polymorphic_function.polymorphic_function import (
    UnliftedInitializerVariable,
)
from tensorflow.python.framework import auto_control_deps, op_def_registry
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops import control_flow_util, gradients_util
from tensorflow.python.ops.resource_variable_ops import ResourceVariable
from tensorflow.python.saved_model import save_context
from tensorflow.python.util import dispatch


def eager_device() -> str | None:
    """The device of the innermost `tf.device` in eager mode."""
    return context.context().device_name


def cached_zeros(like: tf.Tensor) -> tf.Tensor | None:
    """The zeros that an eager tape hands over for an unused output like this one.

    They come from a cache of small tensors, one per shape, type and device; None where it has none.
    """
    key = (tuple(like.shape.as_list()), like.dtype, eager_device())
    return context.context().zeros_cache().get(key)


def may_be_recorded() -> bool:
    """Whether a tape or an accumulator of this thread may record what is called now."""
    return record.could_possibly_record()


def stop_recording() -> contextlib.AbstractContextManager:
    """Keeps all tapes from recording."""
    return record.stop_recording()


def is_watched(tensor: tf.Tensor) -> bool:
    """Whether a tape or an accumulator that records now has a derivative by this tensor."""
    return gradients_util.PossibleTapeGradientTypes([tensor]) != 0


def skipped_inputs(op: tf.Operation) -> tuple[int, ...]:
    """The inputs whose gradients an eager tape does not ask its gradient function for."""
    return getattr(op, "skip_input_indices", None) or ()


def in_gradient_of_function() -> bool:
    """Whether the graph that is built is in the function that is the gradient of a tf.function."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if getattr(graph, "name", "").startswith("__backward_"):
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


def with_gradient(
    results: Sequence[tf.Tensor],
    sources: Sequence[tf.Tensor],
    gradient: Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], Sequence[tf.Tensor | None]],
) -> list[tf.Tensor]:
    """Tensors of a graph with another gradient than that of the ops that made them.

    Unlike `tf.custom_gradient` it does not keep the gradient for the life of the process, and what
    it returns can be saved: in a SavedModel the gradient is that of the ops.

    Args:
      results: the tensors.
      sources: what they are made of.
      gradient: makes the gradients of the sources from the sources and the results' cotangents.
    """
    tensors, count = tf.identity_n([*results, *sources]), len(results)

    def of_operation(op: tf.Operation, *cotangents: tf.Tensor) -> list[tf.Tensor | None]:
        return [None] * count + list(gradient(op.inputs[count:], cotangents[:count]))

    tensors[0].op._gradient_function = of_operation  # noqa: SLF001
    return tensors[:count]


def in_xla_graph() -> bool:
    """Whether the graph that is built, or one around it, is compiled by XLA."""
    return control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def update_slice(tensor: tf.Tensor, update: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
    """The tensor with other values from these indices on, in a graph that XLA compiles."""
    return gen_xla_ops.xla_dynamic_update_slice(tensor, update, begin)


def writes_saved_model() -> bool:
    """Whether this thread is writing a SavedModel, which traces functions again."""
    return save_context.in_save_context()


def op_def(name: str) -> Any:
    """The definition of a registered op, by its full name."""
    return op_def_registry.get(name)


def run_in_any_order(ops: frozenset[str]) -> None:
    """Keeps a tf.function from running stateful ops in sequence, and from running unused ones.

    TensorFlow has such a list of its own stateful ops, without public access. In a version without
    it, results are the same, and the ops run in sequence.
    """
    exempt = getattr(auto_control_deps, _EXEMPT, None)
    if isinstance(exempt, frozenset):
        setattr(auto_control_deps, _EXEMPT, exempt | ops)


_EXEMPT = "SKIPPED_ORDER_INSENSITIVE_STATEFUL_OPS"


def hide_from_autograph(function: Callable) -> None:
    """Has AutoGraph leave a function as it is, with all that it calls.

    So AutoGraph neither takes a second to convert them nor warns that it cannot read a generated
    function's source. This is the mark that tf.autograph.experimental.do_not_convert leaves,
    without its wrapper, which would cost every call some microseconds.
    """
    function.autograph_info__ = {}


def result_type(library: ModuleType, op: str) -> str | None:
    """The name of the namedtuple type of an op's result in a module of generated functions.

    The functions look it up on every call. None for an op of one output, which gives a tensor.
    """
    name = f"_{op}Output"
    return name if hasattr(library, name) else None


def fill_dispatch_caches(*more: type) -> None:
    """Keeps TensorFlow from crashing when several threads make its first calls at the same time.

    Its functions select an implementation by the types of their arguments. The arguments are in a
    buffer that all calls of a function share, so no other thread may run until all are checked. But
    the first check of each type runs `isinstance` of an abstract class, which is Python code, where
    the interpreter may switch threads. The call then goes on with the arguments of another call,
    which may be freed. Later checks take the result from a cache, so the caches are filled here.
    Does nothing in a version without them.

    more: classes of arguments in addition to `_arguments`.
    """
    arguments = [*_arguments(), *(_bare(cls) for cls in more)]
    for checker in tuple(getattr(dispatch, _CHECKERS, {}).values()):
        for argument in arguments:
            checker.Check(argument)


_CHECKERS = "_is_instance_checker_cache"


def _arguments() -> list[Any]:
    """A value of each type that TensorFlow's functions are usually called with; none is ever read.

    Nothing here initializes TensorFlow's devices, which a program may still have to configure.
    """
    eager = _bare(EagerTensor)
    with contextlib.suppress(TypeError):
        eager.__init__()  # what it sets before it raises is what its destructor releases
    symbolic = tf.Graph().create_op("Timestamp", [], [tf.float64]).outputs[0]
    tensors = (tf.IndexedSlices, tf.SparseTensor, tf.RaggedTensor)
    classes = (ResourceVariable, UnliftedInitializerVariable, *tensors)
    numbers = {*np.sctypeDict.values(), tf.bfloat16.as_numpy_dtype}
    scalars = [np.zeros([], dtype)[()] for dtype in numbers]
    return [
        *(eager, symbolic, *map(_bare, classes), *scalars, np.zeros([])),
        *(tf.TensorShape([]), tf.float32, None, False, 0, 0.0, 0j, "", b""),
        *((), [], {}, range(0), slice(0)),
    ]


def _bare(cls: type) -> Any:
    """An instance for `isinstance` alone."""
    return cls.__new__(cls)
