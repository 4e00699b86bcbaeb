"""python -m bench.soak NAME [--minutes N | --rounds N] [--peer]

Runs a soak, prints its figures, and writes them and a plot. The exit code is 1 if memory grew or
bits changed. Without --peer, what a run with it wrote before is what ours is compared with.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from bench import machine, process, soak, tidy
from bench.soak import loop

_FOLDER = tidy.FOLDER / "tmp"
_MIB = 2**20
# The number of threads of a session's call, and of TensorFlow's pool.
_THREADS = 2
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "KERAS_BACKEND": "tensorflow"}


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    names = "\n".join(f"  {name:<9} {what}" for name, (_, what) in soak.SOAKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak",
        description=f"{__doc__}\nsoaks:\n{names}",
        formatter_class=argparse.RawTextHelpFormatter,
    )
    add = parser.add_argument
    add("name", choices=tuple(soak.SOAKS))
    add("--minutes", type=float, help="default 60")
    add("--rounds", type=int, help="rounds instead, at least 8, for a length that repeats exactly")
    add("--peer", action="store_true", help="on TensorFlow's and Keras' own operations")
    add(
        "--short",
        action="store_true",
        help="fewer types and smaller shapes; judges what malloc\n"
        "has given out, since resident memory takes longer to settle",
    )
    add("--out", type=pathlib.Path, default=_FOLDER, help="folder (default bench/results/tmp)")
    args = parser.parse_args(argv)
    if args.peer and args.name in soak.WITHOUT_PEER:
        parser.error(f"{args.name} uses no TensorFlow, so there is no --peer")
    if args.minutes and args.rounds:
        parser.error("--minutes and --rounds exclude each other")
    if args.rounds is not None and args.rounds < 8:
        parser.error(f"--rounds must be 8 or more, got {args.rounds}")
    args.minutes = None if args.rounds else args.minutes or 60
    return args


def _send_digest(connection: Connection, name: str, options: dict[str, bool]) -> None:
    connection.send(soak.make(name, threads=1, **options).probe())


def single_threaded_digest(name: str, **options: bool) -> str:
    """The digest of the probe in a process in which TensorFlow and sessions have one thread."""
    one = {f"TF_NUM_{pool}_THREADS": "1" for pool in ("INTRAOP", "INTEROP")}
    child = process.Child(_send_digest, name, options, **one)
    try:
        return child.receive()
    finally:
        child.close()


def _run(args: argparse.Namespace) -> dict[str, Any]:
    os.environ.update(_QUIET)
    options = {"peer": args.peer, "short": args.short}
    result = {
        "schema": 1,
        "bench": f"soak {args.name}",
        "contender": "peer" if args.peer else "ours",
        "plan": {"minutes": args.minutes, "rounds": args.rounds, "short": args.short},
        "machine": machine.stamp(_THREADS) | {"load_at_start": machine.load()},
    }
    work = soak.make(args.name, threads=_THREADS, **options)
    # TensorFlow's GEMMs may have other bits in one thread.
    want = work.probe() if args.peer else single_threaded_digest(args.name, **options)

    def note(text: str) -> None:
        print(f"{args.name}: {text}", file=sys.stderr, flush=True)

    samples = loop.run(work, loop.Plan(args.minutes, args.rounds), want, note)
    result["rows"] = [{"contender": result["contender"], **sample} for sample in samples]
    return result


def _control(args: argparse.Namespace) -> dict[str, Any] | None:
    """The result of the peer's run of the same soak, if there is one."""
    path = args.out / f"soak_{args.name}_peer.json"
    return tidy.read(path) if path.exists() and not args.peer else None


def report(result: dict[str, Any]) -> str:
    """The figures, a line each, and the verdict."""
    found, rows = result["verdict"], result["rows"]
    lines = [f"{result['bench']}, {result['contender']}: {rows[-1]['round']} rounds in"
             f" {rows[-1]['minutes']:.1f} minutes"]  # fmt: skip
    for name, row in found["figures"].items():
        unit, by = (" MiB", _MIB) if name not in ("objects", "threads") else ("", 1)
        before, after, start, end = (row[key] / by for key in ("before", "after", "start", "end"))
        peer = f", the peer's {row['peer_per_round']:.4g}" if "peer_per_round" in row else ""
        lines.append(
            f"  {name:<10} start {start:.1f}, second quarter {before:.1f}, last quarter "
            f"{after:.1f}, end {end:.1f}{unit}; {row['growth']:+.2%}, a round "
            f"{row['per_round']:+.4g}{peer}"
        )
    lines.append("passed" if found["passed"] else f"FAILED: {'; '.join(found['failures'])}")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one soak; returns the exit code."""
    args = _arguments(argv)
    result, control = _run(args), _control(args)
    judged = loop.JUDGED_IF_SHORT if args.short else loop.JUDGED
    result["verdict"] = loop.verdict(result["rows"], control and control["rows"], judged)
    path = args.out / f"soak_{args.name}{'_peer' if args.peer else ''}.json"
    tidy.write(result, path)
    from bench import plot

    picture = plot.memory(result, control, path.with_suffix(".png"))
    print(report(result))
    print(f"written: {path}, {picture}")
    return 0 if result["verdict"]["passed"] else 1
