"""Reads a file of weights: arguments PATH OPTIONS, which are JSON. Prints how it is refused.

The process has no more memory than a file of that size may take, and a minute of its CPU.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import warnings

from helpers.file_limits import memory, most_memory
from tf_blockrnn import weights

SECONDS = 60  # for what would take hours

path, options = sys.argv[1], json.loads(sys.argv[2])
warnings.simplefilter("ignore")
space = memory("VmSize") + most_memory(os.path.getsize(path))
resource.setrlimit(resource.RLIMIT_AS, (space, space))
seconds = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + SECONDS
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
try:
    weights.read(path, **options)
except ValueError as error:
    print(str(error)[:1000])
