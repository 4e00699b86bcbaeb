"""Reads mutated files of weights: arguments KIND[,KIND...] SEED FIRST NUMBER [FOLDER].

A forked process reads one case after another, with little more memory than it has, and writes
beforehand which; where it ends by a signal, of which the alarm is one, the next one goes on behind
that case. Each case that neither returns weights nor raises ValueError with the file's name is a
line of the output, and its files go to the folder. The last line has how often there was what.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator

from helpers import file_mutations
from helpers.file_limits import memory, most_memory
from helpers.file_mutations import Sample
from tf_blockrnn import weights

MEMORY = 4 << 30
# Only for what hangs: a case takes milliseconds.
SECONDS = 120


def problem(sample: Sample, folder: pathlib.Path) -> str:
    """Reads a sample; what is wrong with how that ends, or the kind of end in brackets."""
    path = folder / sample.path
    try:
        weights.read(str(path), **sample.options)
    except ValueError as error:
        if str(path) not in str(error):
            return f"an error without the file: {error!r}"
        return f"({type(error).__name__})"
    except BaseException as error:
        return repr(error)[:300]
    return "(read)"


def reset_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def child(kind: str, seed: int, first: int, end: int, folder: pathlib.Path, pipe: int) -> None:
    """Reads cases, and reports each before and after."""
    most = memory("VmSize") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for case, sample in file_mutations.cases(kind, seed, first, end - first):
        place = folder / str(case)
        place.mkdir()
        for name, data in sample.files.items():
            (place / name).write_bytes(data)
        os.write(pipe, json.dumps([case, None]).encode() + b"\n")
        reset_peak()
        before = memory("VmRSS")
        signal.alarm(SECONDS)
        end_of_case = problem(sample, place)
        signal.alarm(0)
        taken = memory("VmHWM") - before
        if taken > most_memory(sum(map(len, sample.files.values()))) and end_of_case[0] == "(":
            end_of_case = f"it took {taken >> 20} MiB"
        if sorted(os.listdir(place)) != sorted(sample.files) or os.listdir():
            end_of_case = "it wrote a file"
        shutil.rmtree(place)
        os.write(pipe, json.dumps([case, end_of_case]).encode() + b"\n")


def read_cases(kind: str, seed: int, first: int, number: int) -> Iterator[tuple[int, str]]:
    """The numbers of cases, and how each ended."""
    for sample in file_mutations.samples(kind):  # imports what its reader needs
        with tempfile.TemporaryDirectory() as folder:
            for name, data in sample.files.items():
                pathlib.Path(folder, name).write_bytes(data)
            problem(sample, pathlib.Path(folder))
    end = first + number
    with tempfile.TemporaryDirectory() as here:
        folder, cwd = pathlib.Path(here), pathlib.Path(here, "empty")
        cwd.mkdir()
        while first < end:
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read)
                os.chdir(cwd)
                child(kind, seed, first, end, folder, write)
                os._exit(0)
            os.close(write)
            result = None
            with os.fdopen(read) as lines:
                for line in lines:
                    first, result = json.loads(line)
                    if result is not None:
                        yield first, result
                        first += 1
            _, status = os.waitpid(pid, 0)
            if result is None:
                yield first, f"ended with {os.waitstatus_to_exitcode(status)}"
                first += 1


def main(kinds: str, seed: int, first: int, number: int, kept: pathlib.Path | None) -> None:
    warnings.simplefilter("ignore")
    ends: collections.Counter[str] = collections.Counter()
    for kind in kinds.split(","):
        for case, result in read_cases(kind, seed, first, number):
            ends[result if result.startswith("(") else "wrong"] += 1
            if result.startswith("("):
                continue
            print(f"{kind} {seed} {case}: {result}", flush=True)
            if kept is not None:
                place = kept / f"{kind}_{seed}_{case}"
                place.mkdir(parents=True, exist_ok=True)
                (_, sample) = next(file_mutations.cases(kind, seed, case, 1))
                for name, data in sample.files.items():
                    (place / name).write_bytes(data)
    print(json.dumps(ends))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], *map(int, given[1:4]), pathlib.Path(given[4]) if given[4:] else None)
