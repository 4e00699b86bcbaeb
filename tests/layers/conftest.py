"""The same random numbers in every test."""

from __future__ import annotations

import keras
import pytest


@pytest.fixture(autouse=True)
def _seeded(tfb):
    keras.utils.set_random_seed(7)
