"""Soaks: loops that run for an hour, to show flat memory and equal bits.

    python -m bench.soak training --minutes 60

`SOAKS` has their names. A soak is a class with the methods of `loop.Soak`; `--peer` runs the same
loop on TensorFlow's and Keras' own operations, so that growth that is theirs can be told apart.
"""

from __future__ import annotations

import importlib
from typing import Any

# Each with its module and what it does.
SOAKS = {
    "training": ("training", "training steps with changing batch sizes, lengths and types"),
    "session": ("sessions", "8 threads on one inference.Session"),
    "streams": ("sessions", "inference.Streams with random joins and leaves"),
    "keras": ("switches", "enable, disable, fuse, unfuse, freeze and release of new models"),
    "jit": ("jit", "compilation of functions with jit_compile=True for 200 shapes"),
}
# These use no TensorFlow, whose growth would have to be told apart.
WITHOUT_PEER = ("session", "streams")


def make(name: str, *, peer: bool = False, short: bool = False, threads: int = 2) -> Any:
    """A soak. Imports TensorFlow if the soak needs it.

    peer: on TensorFlow's and Keras' own operations.
    short: fewer types and smaller shapes, for rounds of a fraction of a second.
    threads: of each call of a session.
    """
    module, _ = SOAKS[name]
    soak = getattr(importlib.import_module(f"bench.soak.{module}"), name.capitalize())
    return soak(threads=threads, short=short) if name in WITHOUT_PEER else soak(peer, short)
