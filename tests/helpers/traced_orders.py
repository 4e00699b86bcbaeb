"""Derivatives of a call in every order of tracing, tapes, nesting and compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from helpers import run_modes, second_op_cases
from helpers.second_cases import Case, weighted

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

Tensors = dict[str, tf.Tensor]
Outputs = Sequence[tf.Tensor]
Function = Callable[[Tensors], Outputs]


class Model:
    """A call of an op: the arguments by name, or variables instead, and the state in both."""

    def __init__(self, tfb, case: str, captured: bool = False) -> None:
        self._tfb, self._case = tfb, second_op_cases.make(case, steps=2, batch=2)
        names = self._case.inputs.keys()
        self.state = next(name for name in ("h", "h_prev", "input_h") if name in names)
        given = {name: tf.constant(value) for name, value in self._case.inputs.items()}
        self._captured = {}
        if captured:
            self._captured = {k: tf.Variable(given.pop(k)) for k in names - {self.state}}
        self.given: Tensors = given

    @property
    def sources(self) -> list:
        return [*self._captured.values()]

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
    """How the call gets its derivative."""

    inner: str  # the mode of the function that calls the op
    outer: str  # the mode of the function around it
    around: bool  # the derivative is taken of the outer function, not in it
    traced: str  # the inner function: "under" the tape, "before", or "compiled" before
    called: str  # how often: "once", "twice", or in a function: "nested"


def composed(model: Model, function: Function, plan: Plan) -> Function:
    """One call or two, of which the second starts with the state after the first."""
    if plan.called == "once":
        return function

    def twice(given: Tensors) -> Outputs:
        state = model.after(function(given))
        return function({**given, model.state: state})

    return run_modes.in_mode(plan.inner, twice) if plan.called == "nested" else twice


def run(model: Model, derivative: Callable, plan: Plan) -> list[tf.Tensor]:
    """The derivative in that order."""
    function = composed(model, run_modes.in_mode(plan.inner, model.call), plan)
    if plan.around:
        function = run_modes.in_mode(plan.outer, function)
    if plan.traced == "compiled":
        run_modes.in_mode("jit", function)(model.given)
    elif plan.traced == "before":
        function(model.given)
    if plan.around:
        return derivative(model, function, model.given)
    return run_modes.in_mode(plan.outer, lambda given: derivative(model, function, given))(
        model.given
    )


def _sources(model: Model, given: Tensors) -> list:
    return [*given.values(), *model.sources]


def _watching(model: Model, given: Tensors, **options) -> tf.GradientTape:
    tape = tf.GradientTape(**options)
    return tape


def _total(outputs: Outputs) -> tf.Tensor:
    return tf.add_n([weighted(output) for output in outputs])


def tape(model: Model, function: Function, given: Tensors) -> list:
    with tf.GradientTape() as tape:
        tape.watch(given)
        total = _total(function(given))
    return tape.gradient(total, _sources(model, given))


def persistent_tape(model: Model, function: Function, given: Tensors) -> list:
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(given)
        outputs = function(given)
        total, first = _total(outputs), weighted(outputs[0])
    sources = _sources(model, given)
    both = [tape.gradient(target, sources) for target in (total, first)]
    # The sum of one output alone is subtracted again.
    return [a if b is None else a + b - b for a, b in zip(*both, strict=True)]


def tape_of_tape(model: Model, function: Function, given: Tensors) -> list:
    sources = _sources(model, given)
    with tf.GradientTape() as outer:
        outer.watch(given)
        first = tape(model, function, given)
        total = tf.add_n([weighted(gradient) for gradient in first])
    return outer.gradient(total, sources)


def symbolic(model: Model, function: Function, given: Tensors) -> list:
    @tf.function
    def gradients(given: Tensors) -> list:
        return tf.gradients(_total(function(given)), _sources(model, given))

    return gradients(given)


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
    return tape.jacobian(state, _sources(model, given), unconnected_gradients="zero")


def forward_mode(model: Model, function: Function, given: Tensors) -> list:
    sources = _sources(model, given)
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
