"""Runs test files of Keras with this package's layers in the place of Keras' own.

A program: takes the files, writes a line of JSON at the end. `outcomes` has one entry for each
test, `fused` is how often a layer of ours ran on its op meanwhile.
"""

from __future__ import annotations

import collections
import json
import sys

import keras
import pytest
from keras.src import layers as keras_src_layers

from tf_blockrnn import layers
from tf_blockrnn.layers._fused_layer import FusedLayer

for _name in ("GRU", "LSTM", "SimpleRNN"):
    for _module in (keras.layers, keras_src_layers):
        setattr(_module, _name, getattr(layers, _name))


class Outcomes:
    """A plugin of pytest that notes how each test ended."""

    def __init__(self):
        self.of_test: dict[str, str] = {}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.of_test[report.nodeid.rsplit("/", 1)[-1]] = report.outcome


def count_fused() -> collections.Counter:
    """Counts the runs of the fused layers from now on, by class."""
    counter = collections.Counter()
    original = FusedLayer.inner_loop

    def inner_loop(self, *args, **kwargs):
        counter[type(self).__name__] += self.fused
        return original(self, *args, **kwargs)

    FusedLayer.inner_loop = inner_loop
    return counter


def main(files: list[str]) -> int:
    outcomes, fused = Outcomes(), count_fused()
    options = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--tb=short"]
    code = pytest.main([*options, *files], plugins=[outcomes])
    print()
    print(json.dumps({"outcomes": outcomes.of_test, "fused": fused}))
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
