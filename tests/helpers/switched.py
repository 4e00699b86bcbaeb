"""A model that is used, before and after the switch of `enable_keras` is turned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

USES = ("fit", "evaluate", "predict", "train_on_batch", "predict_on_batch")


def check_traces(
    model: Any, use: str, x: Any, y: Any, traces: list[bool], on: Callable, off: Callable
) -> None:
    """It traces its layers again after a switch, and only then.

    traces: to which each trace of a layer appends whether the switch is on; it is off.
    """
    model.compile("sgd", "mse")
    given = (x,) if "predict" in use else (x, y)
    options = {} if "batch" in use else {"verbose": 0}

    def traces_after(*switches: Callable) -> set[bool]:
        for switch in switches:
            switch()
        traces.clear()
        getattr(model, use)(*given, **options)
        return set(traces)

    assert traces_after() == {False} and not traces_after()
    assert traces_after(on) == {True} and not traces_after(off, on)
    assert traces_after(off) == {False} and not traces_after(on, off)


def check_own_function_is_kept(model: Any, x: Any, y: Any, report: Callable, on: Callable) -> None:
    """A function that the user set, which calls Keras' own, survives a switch; theirs does not."""
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    model.predict(x, verbose=0)
    calls, keras_function = [], model.train_function

    def mine(iterator):
        calls.append(iterator)
        return keras_function(iterator)

    model.train_function = mine
    with on():
        assert report(model).traced_again == ("predict",)
        model.fit(x, y, verbose=0)
    assert model.train_function is mine and calls
