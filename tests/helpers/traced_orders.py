"""Derivatives of a call in every order of tracing, tapes, nesting and compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

import tensorflow as tf

from helpers import run_modes, second_op_cases
from helpers.second_cases import Case, random_array

STEPS = 2  # of a loop

# Each op with an attr is_training has a case, and the others one of each kind of gradient.
CASES = (
    "lstm",
    "gru after",
    "gru before",
    "layer norm lstm",
    "layer norm gru",
    "rnn tanh",
    "LSTM cell",
    "GRU cell",
    "BlockLSTM",
    "BlockLSTMV2",
    "BlockGRU",
    "stack lstm",
)

OF_TENSORFLOW, LOOP_OF_TENSORFLOW = "TensorFlow's own", "TensorFlow's own, in a loop"

Tensors = dict[str, tf.Tensor]
Outputs = Sequence[tf.Tensor]
Function = Callable[[Tensors], Outputs]


class _OfTensorFlow:
    """A recurrence in TensorFlow's own ops, for what TensorFlow refuses itself."""

    sequence, outputs = True, ("h",)

    def __init__(self, loop: bool) -> None:
        self._loop = loop
        shapes = {"x": (2, 2, 2), "h_prev": (2, 3), "w_x": (2, 3), "w_h": (3, 3), "b": (3,)}
        self.inputs = {k: random_array(v, [len(k), 3]) for k, v in shapes.items()}

    def call(self, tfb: ModuleType, given: Tensors) -> Outputs:
        del tfb
        h, states = given["h_prev"], []
        w = tf.concat([given["w_x"], given["w_h"]], axis=0)

        def step(h: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            return tf.tanh(tf.concat([x, h], axis=1) @ w + given["b"])

        if self._loop:
            return [tf.scan(step, given["x"], initializer=h)]
        for x in tf.unstack(given["x"]):
            h = step(h, x)
            states.append(h)
        return [tf.stack(states)]


class Model:
    """A call of an op: the arguments by name, or variables instead, and the state in both."""

    def __init__(self, tfb: ModuleType, case: str, captured: bool = False) -> None:
        """case: of CASES, or TensorFlow's own."""
        self._tfb = tfb
        if case in (OF_TENSORFLOW, LOOP_OF_TENSORFLOW):
            self._case = _OfTensorFlow(loop=case == LOOP_OF_TENSORFLOW)
        else:
            self._case = second_op_cases.make(case, steps=2, batch=2)
        names = self._case.inputs.keys()
        self.state = next(name for name in ("h", "h_prev", "input_h") if name in names)
        given = {name: tf.constant(value) for name, value in self._case.inputs.items()}
        self._captured = {}
        if captured:
            self._captured = {k: tf.Variable(given.pop(k)) for k in names if k != self.state}
        self.given: Tensors = given

    def sources(self, given: Tensors) -> list:
        """What derivatives are taken by: arguments in a function, and the variables."""
        return [*given.values(), *self._captured.values()]

    def call(self, given: Tensors) -> Outputs:
        captured = {name: tf.convert_to_tensor(v) for name, v in self._captured.items()}
        return self._case.call(self._tfb, {**captured, **given})

    def after(self, outputs: Outputs) -> tf.Tensor:
        """The state after a call."""
        if isinstance(self._case, (Case, second_op_cases.CudnnCase)):
            return outputs[1]
        h = outputs[self._case.outputs.index("h")]
        return h[-1] if self._case.sequence else h


class Plan(NamedTuple):
    """How a call gets its derivative."""

    inner: str  # the mode of the function that calls the op
    outside: str  # the mode of the function around it, and whether the derivative is in that
    traced: str  # the inner function: "under" the tape, "before", or before and "compiled"
    called: str  # "once", "twice", or in another function: twice, "nested", or a "loop"


OUTSIDE = ("eager", "in graph", "in jit", "around graph", "around jit")
PLANS = (
    ("graph", "jit"),
    OUTSIDE,
    ("under", "before", "compiled"),
    ("once", "twice", "nested", "loop"),
)
EAGER = Plan("eager", "eager", "under", "once")


def _function(mode: str, function: Callable) -> Callable:
    # AutoGraph does not find the names of nested functions.
    return run_modes.in_mode(mode, function, autograph=False)


def _composed(model: Model, function: Function, plan: Plan) -> Function:
    """One call, or several of which each starts with the state after the one before."""
    if plan.called == "once":
        return function

    def after(given: Tensors, state: tf.Tensor) -> tf.Tensor:
        return model.after(function({**given, model.state: state}))

    def loop(given: Tensors) -> tf.Tensor:
        start = (0, given[model.state])
        return tf.while_loop(
            lambda k, _: k < STEPS,
            lambda k, state: (k + 1, after(given, state)),
            start,
            maximum_iterations=STEPS,
        )[1]

    def several(given: Tensors) -> Outputs:
        state = loop(given) if plan.called == "loop" else after(given, given[model.state])
        return function({**given, model.state: state})

    if plan.called == "twice":
        return several
    # XLA has no gradient of a compiled loop that is taken outside of the program.
    return _function("graph" if plan.called == "loop" else plan.inner, several)


def run(model: Model, derivative: Callable, plan: Plan) -> list[tf.Tensor]:
    """The derivative in that order."""
    where, _, outer = plan.outside.partition(" ")
    function = _composed(model, _function(plan.inner, model.call), plan)
    if where == "around":
        function = _function(outer, function)
    if plan.traced == "compiled":
        _function("jit", function)(model.given)
    elif plan.traced == "before":
        function(model.given)
    of_given = lambda given: derivative(model, function, given)  # noqa: E731
    return (_function(outer, of_given) if where == "in" else of_given)(model.given)


def _total(*outputs: tf.Tensor) -> tf.Tensor:
    return tf.add_n([tf.reduce_sum(output * output) for output in outputs])


def tape(model: Model, function: Function, given: Tensors) -> list:
    with tf.GradientTape() as tape:
        tape.watch(given)
        total = _total(*function(given))
    return tape.gradient(total, model.sources(given))


def persistent_tape(model: Model, function: Function, given: Tensors) -> list:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(given)
        outputs = function(given)
        totals = _total(*outputs), _total(outputs[0])
    return [each for total in totals for each in tape.gradient(total, model.sources(given))]


def tape_of_tape(model: Model, function: Function, given: Tensors) -> list:
    with tf.GradientTape() as outer:
        outer.watch(given)
        total = _total(*tape(model, function, given))
    return outer.gradient(total, model.sources(given))


def symbolic(model: Model, function: Function, given: Tensors) -> list:
    def gradients(given: Tensors) -> list:
        return tf.gradients(_total(*function(given)), model.sources(given))

    return _function("graph", gradients)(given)


def custom_gradient(model: Model, function: Function, given: Tensors) -> list:
    @tf.custom_gradient
    def customized(*arguments):
        with tf.GradientTape() as inner:
            inner.watch(arguments)
            outputs = function(dict(zip(given, arguments, strict=True)))

        def gradient(*cotangents, variables=()):
            found = inner.gradient(
                outputs, [*arguments, *variables], output_gradients=list(cotangents)
            )
            count = len(arguments)
            return (found[:count], found[count:]) if variables else found

        return list(outputs), gradient

    return tape(model, lambda given: customized(*given.values()), given)


def recompute_grad(model: Model, function: Function, given: Tensors) -> list:
    again = tf.recompute_grad(lambda *a: list(function(dict(zip(given, a, strict=True)))))
    return tape(model, lambda given: again(*given.values()), given)


def cond(model: Model, function: Function, given: Tensors) -> list:
    def branches(given: Tensors) -> Outputs:
        return tf.cond(
            tf.reduce_sum(given[model.state]) > -1e6,
            lambda: list(function(given)),
            lambda: [0 * output for output in function(given)],
        )

    return tape(model, branches, given)


def while_loop(model: Model, function: Function, given: Tensors) -> list:
    def loop(given: Tensors) -> Outputs:
        def body(k, state):
            return k + 1, model.after(function({**given, model.state: state}))

        start = (0, given[model.state])
        return tf.while_loop(lambda k, _: k < STEPS, body, start, maximum_iterations=STEPS)[1:]

    return tape(model, loop, given)


def scan(model: Model, function: Function, given: Tensors) -> list:
    def scanned(given: Tensors) -> Outputs:
        return [
            tf.scan(
                lambda state, _: model.after(function({**given, model.state: state})),
                tf.range(STEPS),
                given[model.state],
            )
        ]

    return tape(model, scanned, given)


def map_fn(model: Model, function: Function, given: Tensors) -> list:
    def mapped(given: Tensors) -> Outputs:
        states = tf.stack([given[model.state], -given[model.state]])
        one = lambda state: model.after(function({**given, model.state: state}))  # noqa: E731
        return [tf.map_fn(one, states)]

    return tape(model, mapped, given)


def jacobian(model: Model, function: Function, given: Tensors) -> list:
    with tf.GradientTape() as tape:
        tape.watch(given)
        state = tf.reduce_sum(model.after(function(given)), axis=-2)
    return tape.jacobian(state, model.sources(given), unconnected_gradients="zero")


def forward_mode(model: Model, function: Function, given: Tensors) -> list:
    sources = model.sources(given)
    tangents = [tf.cos(tf.convert_to_tensor(source)) for source in sources]
    with tf.autodiff.ForwardAccumulator(sources, tangents) as accumulator:
        outputs = function(given)
    return [accumulator.jvp(output) for output in outputs]


DERIVATIVES = {
    f.__name__: f
    for f in (
        tape, persistent_tape, tape_of_tape, symbolic, custom_gradient, recompute_grad, cond,
        while_loop, scan, map_fn, jacobian, forward_mode,
    )
}  # fmt: skip
