"""Fixtures that every test module shares.

Nothing is skipped silently: a package that does not import is an error of every test that asks
for it, and a test that needs a GPU reports that it was not run.
"""

from __future__ import annotations

import os
import sys

import pytest
import tiers
from helpers.children import ROOT

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# The oracles' GEMMs are small, and their threads would only spin on each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The build scripts import each other by name; last, since `build` is a package of others, too.
sys.path.append(str(ROOT / "tools"))


def pytest_addoption(parser):
    parser.addoption(
        "--device", help="where eager ops and graphs are placed, as /GPU:0 (test_gpu_ops.py)"
    )


# First, so that -m sees the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(tiers.tier_of(item))


@pytest.fixture(autouse=True)
def _placed(request):
    """Every test inside the device that was asked for."""
    device = request.config.getoption("--device")
    if device is None:
        yield
        return
    import tensorflow

    # Its 10 bits are below the tolerances of float32.
    tensorflow.config.experimental.enable_tensor_float_32_execution(False)
    with tensorflow.device(device):
        yield


@pytest.fixture(scope="session")
def tf():
    """TensorFlow, imported when the first test needs it."""
    import tensorflow

    return tensorflow


@pytest.fixture(scope="session")
def tfb(tf):
    """The package under test; an import error here is an error, never a skip."""
    import tf_blockrnn

    return tf_blockrnn
