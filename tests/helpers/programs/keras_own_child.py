"""Runs test files of Keras on the fused ops.

A program: takes `layers` (this package's layers in the place of Keras' own) or `enable_keras`
(Keras' own layers, switched), then the files; writes a line of JSON at the end. `outcomes` has one
entry for each test, `fused` is how often a layer of each class ran on its op meanwhile.
"""

from __future__ import annotations

import collections
import json
import sys

import keras
import pytest
from keras.src import layers as keras_src_layers

import tf_blockrnn
from tf_blockrnn.layers import _cell_loop, _fused_call

NAMES = ("GRU", "LSTM", "SimpleRNN")


def switch(how: str) -> None:
    if how == "enable_keras":
        tf_blockrnn.enable_keras()
        return
    for name in NAMES:
        for module in (keras.layers, keras_src_layers):
            setattr(module, name, getattr(tf_blockrnn.layers, name))


class Outcomes:
    """A plugin of pytest that notes how each test ended."""

    def __init__(self):
        self.of_test: dict[str, str] = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.of_test[report.nodeid.rsplit("/", 1)[-1]] = report.outcome


def count_fused() -> collections.Counter:
    """Counts the runs of the fused layers and loops from now on, by class."""
    counter = collections.Counter()

    def counting(function):
        def call(layer, *args, **kwargs):
            counter[type(layer).__name__] += 1
            return function(layer, *args, **kwargs)

        return call

    _fused_call.call = counting(_fused_call.call)
    _cell_loop._loop = counting(_cell_loop._loop)
    return counter


def main(how: str, *files: str) -> int:
    outcomes, fused = Outcomes(), count_fused()
    switch(how)
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--tb=short"]
    code = pytest.main([*options, *files], plugins=[outcomes])
    print()
    print(json.dumps({"outcomes": outcomes.of_test, "fused": fused}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
