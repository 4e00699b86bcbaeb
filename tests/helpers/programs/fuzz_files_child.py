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
from helpers.file_mutations import Sample
from tf_blockrnn import weights

MEMORY = 4 << 30
LARGE = 1 << 30
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


def child(kind: str, seed: int, first: int, end: int, folder: pathlib.Path, pipe: int) -> None:
    """Reads cases, and reports each before and after."""
    size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    for case, sample in file_mutations.cases(kind, seed, first, end - first):
        place = folder / str(case)
        place.mkdir()
        for name, data in sample.files.items():
            (place / name).write_bytes(data)
        os.write(pipe, json.dumps([case, None]).encode() + b"\n")
        signal.alarm(SECONDS)
        said = problem(sample, place)
        signal.alarm(0)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        if peak - size > LARGE and said.startswith("("):
            said = f"it took {peak >> 20} MiB"
        if sorted(os.listdir(place)) != sorted(sample.files) or os.listdir():
            said = "it wrote a file"
        shutil.rmtree(place)
        os.write(pipe, json.dumps([case, said]).encode() + b"\n")


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
            said = None
            with os.fdopen(read) as lines:
                for line in lines:
                    first, said = json.loads(line)
                    if said is not None:
                        yield first, said
                        first += 1
            _, status = os.waitpid(pid, 0)
            if said is None:
                yield first, f"ended with {os.waitstatus_to_exitcode(status)}"
                first += 1


def main(kinds: str, seed: int, first: int, number: int, kept: pathlib.Path | None) -> None:
    warnings.simplefilter("ignore")
    ends: collections.Counter[str] = collections.Counter()
    for kind in kinds.split(","):
        for case, said in read_cases(kind, seed, first, number):
            ends[said if said.startswith("(") else "wrong"] += 1
            if said.startswith("("):
                continue
            print(f"{kind} {seed} {case}: {said}", flush=True)
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
