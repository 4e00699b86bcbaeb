"""python -m bench [VERB]

VERB: one of the benches (default: all of them, one after another, but for those with a result of
this commit), or
  show FILE   prints the tables of a result and redoes its plots
  pages       writes the generated parts of README.md and docs/, and their plots, from the results

A complete run takes hours on two cores, most of it for the sequences and stacks, and needs a quiet
machine; --seconds and --rounds trade time for less noise. --help of a verb has its options.
"""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bench import (
    cells,
    machine,
    pages,
    provenance,
    questions,
    record,
    shapes,
    tables,
    tidy,
    timing,
)  # fmt: skip
from bench.peers import PEERS

_QUICK = timing.Plan(rounds=2, seconds=0.02)
_DEFAULT = timing.Plan()
_PEER_BENCHES = (
    "sequences", "stacks", "bfloat16", "layers", "inference", "loops", "single_steps",
)  # fmt: skip
_BENCHES = ("cells", *shapes.BENCHES)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for bench in ("all", *_BENCHES):
        asks = [question.asks for question in questions.of(bench)]
        add = verbs.add_parser(bench, help=(asks or ["All benches."])[0]).add_argument
        add("--quick", action="store_true", help="tiny shapes and times, to test the bench itself")
        add("--rounds", type=int, help=f"rounds of each contender (default {_DEFAULT.rounds})")
        add("--seconds", type=float, help=f"per contender and case (default {_DEFAULT.seconds})")
        add("--threads", type=int, default=machine.cores(), help="default: all cores")
        add("--out", type=pathlib.Path, help="folder (default bench/results, or its folder partial"
            " when something is left out)")  # fmt: skip
        if bench == "all":
            # fmt: off
            add("--again", nargs="*", choices=_BENCHES, metavar="BENCH",
                help="also these, which have a result of this commit; without names all")
            add("--wait", type=float, default=600, metavar="SECONDS",
                help="for a quiet machine, before each bench (default 600)")
            add("--even-if-busy", action="store_true", help="measures on a busy machine, too")
            # fmt: on
            continue
        form = "BxIxH" if bench == "cells" else "BxTxIxH"
        add("--shapes", nargs="+", metavar=form, default=[], help="these shapes only")
        add("--only", nargs="+", metavar="WORD", default=[],
            help="cells, kinds (infer, train), sets or variants of the rows, or ops")  # fmt: skip
        if bench in _PEER_BENCHES:
            add("--peers", nargs="+", choices=tuple(PEERS))
            add("--log", type=pathlib.Path, default=os.devnull, help="file for what peers print")
    show = verbs.add_parser("show", help="print the tables of a result and redo its plots")
    show.add_argument("file", type=pathlib.Path, help="a JSON file that the bench wrote")
    page = verbs.add_parser("pages", help="write the generated parts of README.md and docs/")
    page.add_argument("--root", type=pathlib.Path, default=pathlib.Path(), help="of the pages")
    page.add_argument("--results", type=pathlib.Path, default=tidy.FOLDER)
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        argv = ["all", *argv]
    return parser.parse_args(argv)


def _plan(args: argparse.Namespace) -> timing.Plan:
    base = _QUICK if args.quick else _DEFAULT
    return timing.Plan(args.rounds or base.rounds, args.seconds or base.seconds)


def _shapes(args: argparse.Namespace) -> list[tuple[int, ...]]:
    """The shapes that replace the bench's own, if any."""
    rank = 3 if args.verb == "cells" else 4
    quick = [(b, *rest[-rank + 1 :]) for b, *rest in shapes.QUICK] if args.quick else []
    return [shapes.parse(text, rank) for text in getattr(args, "shapes", ())] or quick


def _folder(args: argparse.Namespace, result: dict[str, Any]) -> pathlib.Path:
    """The folder of the result: a partial run must not replace a complete one."""
    names = ("quick", "only", "shapes", "peers")
    partial = result["interrupted"] or any(getattr(args, name, None) for name in names)
    return args.out or (tidy.FOLDER / "partial" if partial else tidy.FOLDER)


def _show(result: dict[str, Any], folder: pathlib.Path) -> None:
    """Prints the tables and whether the machine was quiet, and draws the plots."""
    from bench import plot

    for question in questions.of(result["bench"]):
        if tables.lines(question, result) or tables.missing(question, result):
            print(tables.text(question, result), end="\n\n")
            if question.plotted:
                print(plot.question(question, result, folder / pages.plot_name(question)))
    print(provenance.measured(result))


def _cases(args: argparse.Namespace, bench: str) -> list[Any]:
    """What the arguments select; ValueError if it does not exist."""
    only, chosen = getattr(args, "only", ()), _shapes(args)
    if bench != "cells":
        return shapes.cases(bench, only, chosen)
    if wrong := set(only) - set(cells.OPS):
        raise ValueError(f"cells has no {', '.join(sorted(wrong))}")
    return list(itertools.product(only or cells.OPS, chosen or shapes.CELL_SHAPES))


def _peers(args: argparse.Namespace, cases: Sequence[shapes.Case]) -> list[str]:
    """The selected peers that support any of the cases."""
    default = [name for name, entry in PEERS.items() if entry.default]
    peers = getattr(args, "peers", None) or default
    return [name for name in peers if any(PEERS[name].does(case) for case in cases)]


def _processes(args: argparse.Namespace, bench: str, cases: Sequence[shapes.Case]) -> Any:
    from bench import sequences

    log = getattr(args, "log", pathlib.Path(os.devnull))
    return sequences.run(bench, cases, _peers(args, cases), _plan(args), args.threads, log)


def _in_process(args: argparse.Namespace, bench: str, cases: Sequence[Any]) -> Any:
    from bench import calls, first_calls, jit, memory, steps
    from bench.peers import tensorflow_base

    plan, threads = _plan(args), args.threads
    tf = tensorflow_base.start(threads)
    if bench == "cells":
        return cells.run(cases, tf, plan, threads)
    measure: Callable[..., list[tidy.Row]] = {
        "calls": lambda case, note: calls.measure(tf, case, plan, note),
        "first_calls": lambda case, note: first_calls.measure(case, threads, plan, note),
        "jit": lambda case, note: jit.measure(tf, case, plan, note),
        "derivatives": lambda case, note: steps.measure(tf, case, plan, note),
        "layer_norm": lambda case, note: steps.measure(tf, case, plan, note),
        "memory": lambda case, note: memory.measure_peers(case, threads, note),
        "recompute": lambda case, note: memory.measure_recompute(case, threads, plan, note),
    }[bench]
    return tidy.collect(tidy.new(bench, threads, plan), cases, measure)


def _run(args: argparse.Namespace, bench: str) -> None:
    try:
        cases = _cases(args, bench)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    run = _processes if bench in _PEER_BENCHES else _in_process
    result = run(args, bench, cases)
    folder = _folder(args, result)
    tidy.write(result, folder / f"{bench}.json")
    _show(result, folder)
    print(f"written: {folder / bench}.json")


def _contenders(bench: str, cases: Sequence[Any]) -> int:
    """The number of measurements in the cases of a bench."""
    if bench in _PEER_BENCHES:
        return sum(entry.default and entry.does(case) for case in cases for entry in PEERS.values())
    columns = [column for question in questions.of(bench) for column in question.columns]
    return len(cases) * len({name for column in columns for name in column.contenders})


def _jobs(args: argparse.Namespace) -> list[record.Job]:
    words = ["--quick"] * args.quick
    for name in ("rounds", "seconds", "threads", "out"):
        if (value := getattr(args, name)) is not None:
            words += [f"--{name}", str(value)]
    folder, jobs = _folder(args, {"interrupted": False}), []
    for bench in _BENCHES:
        path = folder / f"{bench}.json"
        cases = _cases(argparse.Namespace(verb=bench, quick=args.quick), bench)
        seconds = record.estimate(bench, _contenders(bench, cases), _plan(args), path)
        jobs.append(record.Job(bench, tuple(words), path, seconds))
    return jobs


def _run_all(args: argparse.Namespace) -> int:
    jobs = _jobs(args)
    again = [] if args.again is None else args.again or _BENCHES
    recorded = [
        job.bench for job in jobs if job.bench not in again
        and record.is_recorded(job.path, _plan(args), args.threads)
    ]  # fmt: skip
    anyway = args.quick or args.even_if_busy
    came = record.run(jobs, recorded, lambda: "" if anyway else machine.wait_until_quiet(args.wait))
    print("\n".join(record.report(jobs, came)))
    done = all(what.startswith(("measured", "recorded")) for what in came.values())
    return 0 if done else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns the exit code."""
    args = _arguments(argv)
    # `timeout` and Ctrl-C end a run the same way: with the results so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if args.verb == "show":
        _show(tidy.read(args.file), args.file.parent)
    elif args.verb == "pages":
        for path in pages.write(args.root, args.results):
            print(path)
    elif args.verb == "all":
        return _run_all(args)
    else:
        _run(args, args.verb)
    return 0
