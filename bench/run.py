"""python -m bench [VERB]

VERB: cells, sequences, stacks, bfloat16, layers, inference, calls, jit, memory, recompute, all,
show or readme.

The default verb is `all`. A complete run takes over an hour on two cores, most of it for the
sequences and stacks; `--seconds` and `--rounds` trade time for less noise.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from bench import (
    calls,
    inference_report,
    jit_report,
    layers_report,
    machine,
    memory,
    op_cases,
    pages,
    recompute_report,
    report,
    shapes,
    timing,
)
from bench.peers import PEERS

_RESULTS = pathlib.Path(__file__).resolve().parent / "results"
_QUICK = timing.Plan(rounds=2, seconds=0.02)
_DEFAULT = timing.Plan()
# Sweeps show how the cost grows. Keras is left out: tracing its graphs takes seconds per shape.
_SWEEP_PEERS = ("ours", "ours_block", "tf_raw", "torch", "onnxruntime")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    common = argparse.ArgumentParser(add_help=False)
    add = common.add_argument
    add("--quick", action="store_true", help="tiny shapes and times, to test the bench itself")
    add("--rounds", type=int, help=f"rounds of each contender (default {_DEFAULT.rounds})")
    add("--seconds", type=float, help=f"per contender and case (default {_DEFAULT.seconds})")
    add("--shapes", nargs="+", metavar="BxIxH|BxTxIxH", help="these shapes only")
    add("--threads", type=int, default=machine.cores(), help="default: all cores")
    add("--out", type=pathlib.Path, help="folder (default bench/results, or its folder partial"
        " when something is left out)")  # fmt: skip
    cells = verbs.add_parser("cells", parents=[common], help="block cells against tf.raw_ops")
    cells.add_argument("--only", nargs="+", choices=op_cases.OPS, help="these ops only")
    cells.add_argument("--null", action="store_true",
                       help="TensorFlow's ops against themselves: the noise")  # fmt: skip
    peers = argparse.ArgumentParser(add_help=False)
    peers.add_argument("--only", nargs="+", choices=("lstm", "gru", "rnn", "infer", "train"))
    peers.add_argument("--peers", nargs="+", choices=tuple(PEERS))
    peers.add_argument("--log", type=pathlib.Path, help="file for what the peers print")
    sequences = verbs.add_parser("sequences", parents=[common, peers], help="whole sequences")
    sequences.add_argument("--sets", nargs="+", choices=("grid", "hard", "sweep"))
    verbs.add_parser(
        "stacks",
        parents=[common, peers],
        help="the cuDNN RNNs: two layers, both directions, with and without lengths",
    )
    verbs.add_parser(
        "bfloat16",
        parents=[common, peers],
        help="whole sequences, with and without the processor's bfloat16 instructions",
    )
    layers = verbs.add_parser(
        "layers",
        parents=[common, peers],
        help="Keras layers against Keras' and PyTorch's: plain, masked, with recurrent dropout",
    )
    layers.add_argument("--variants", nargs="+", choices=tuple(shapes.LAYER_VARIANTS))
    inference = verbs.add_parser(
        "inference",
        parents=[common],
        help="weights that no longer change: whole Python calls, NumPy in and NumPy out",
    )
    inference.add_argument("--only", nargs="+", choices=("lstm", "gru", "sessions", "models"))
    inference.add_argument("--peers", nargs="+", choices=tuple(PEERS))
    inference.add_argument("--log", type=pathlib.Path, help="file for what the peers print")
    verbs.add_parser("calls", parents=[common], help="the cost of a call beside its op")
    jit = verbs.add_parser(
        "jit", parents=[common], help="programs that XLA compiled: calls, and a Keras model in fit"
    )
    jit.add_argument("--only", nargs="+", choices=("lstm", "gru", "calls", "fit"))
    verbs.add_parser("memory", parents=[common], help="peak memory of training, against TensorFlow")
    verbs.add_parser(
        "recompute", parents=[common], help="memory and time of training a long sequence"
    )
    verbs.add_parser("all", parents=[common], help="all of them, one after another")
    readme = verbs.add_parser(
        "readme", help="write the sections of README.md and docs/, and a chart, from the results"
    )
    readme.add_argument(
        "--root", type=pathlib.Path, default=pathlib.Path(), help="folder of the pages"
    )
    readme.add_argument("--results", type=pathlib.Path, default=_RESULTS)
    show = verbs.add_parser("show", help="print the tables of a result again and redo its plots")
    show.add_argument("file", type=pathlib.Path, help="a JSON file that the bench wrote")
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        argv = ["all", *argv]
    return parser.parse_args(argv)


def _plan(args: argparse.Namespace) -> timing.Plan:
    base = _QUICK if args.quick else _DEFAULT
    return timing.Plan(args.rounds or base.rounds, args.seconds or base.seconds)


def _folder(args: argparse.Namespace, result: dict[str, Any]) -> pathlib.Path:
    """The folder of the result: a partial run must not replace a complete one."""
    names = ("quick", "only", "shapes", "sets", "peers", "null", "variants")
    partial = result.get("interrupted") or any(getattr(args, name, None) for name in names)
    return args.out or (_RESULTS / "partial" if partial else _RESULTS)


def _plots(result: dict[str, Any], folder: pathlib.Path) -> list[pathlib.Path | None]:
    from bench import plot

    if result["bench"] == "cells":
        return [plot.cells(result, folder / "cells.png")]
    if result["bench"] == "sequences":
        return [
            plot.sequence_ratios(result, folder / "sequences_ratio.png"),
            plot.peak_share(result, folder / "sequences_peak.png"),
            *plot.costs(result, folder),
        ]
    if result["bench"] == "layers":
        return [*plot.layers(result, folder)]
    if result["bench"] == "inference":
        return [plot.inference(result, folder / "inference.png")]
    if result["bench"] == "recompute":
        return [plot.recompute(result, folder / "recompute.png")]
    if result["bench"] == "bfloat16":
        return [plot.sequence_ratios(result, folder / "bfloat16_ratio.png")]
    if result["bench"] == "stacks":
        return [
            plot.stack_ratios(result, folder / f"stacks_{name}.png", kind)
            for kind, name in (("infer", "inference"), ("train", "training"))
        ]
    return []


_TEXT: dict[str, Callable[[dict[str, Any]], str]] = {
    "cells": report.cells_text,
    "sequences": report.sequences_text,
    "stacks": report.sequences_text,
    "bfloat16": report.sequences_text,
    "layers": layers_report.text,
    "inference": inference_report.text,
    "calls": calls.text,
    "jit": jit_report.text,
    "memory": memory.text,
    "recompute": recompute_report.text,
}


def _as_json(result: dict[str, Any]) -> str:
    """JSON with a line for each entry and each row, so that two runs can be compared by diff."""
    entries = []
    for key, value in result.items():
        text = json.dumps(value)
        if key == "rows" and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        entries.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _finish(result: dict[str, Any], folder: pathlib.Path) -> None:
    """Writes the JSON and the plots, prints the table."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result['bench']}.json"
    file.write_text(_as_json(result), encoding="utf-8")
    made = [file, *(path for path in _plots(result, folder) if path)]
    print(_TEXT[result["bench"]](result))
    print("\nwritten: " + ", ".join(map(str, made)))


def _cells(args: argparse.Namespace) -> None:
    from bench import cells

    default = shapes.CELL_SHAPES_QUICK if args.quick else shapes.CELL_SHAPES
    chosen = [shapes.parse(s, 3) for s in args.shapes] if args.shapes else default
    ops = getattr(args, "only", None) or op_cases.OPS
    result = cells.run(ops, chosen, _plan(args), args.threads, getattr(args, "null", False))
    _finish(result, _folder(args, result))


def _only(args: argparse.Namespace, cells: Sequence[str]) -> list[tuple[str, str]]:
    """The (cell, kind) that the arguments select."""
    only = set(getattr(args, "only", None) or ())
    some = [c for c in cells if c in only or not only & {"lstm", "gru", "rnn"}]
    kinds = [k for k in ("infer", "train") if k in only or not only & {"infer", "train"}]
    return [(cell, kind) for cell in some for kind in kinds]


def _cases(args: argparse.Namespace) -> list[tuple[str, shapes.Case]]:
    """All (set, case) that the arguments select."""
    if args.shapes:
        by_set = {"chosen": [shapes.parse(s, 4) for s in args.shapes]}
    elif args.quick:
        by_set = {"quick": list(shapes.SEQUENCE_SHAPES_QUICK)}
    else:
        sweeps = {f"sweep-{dim}": shapes.sweep_shapes(dim) for dim in shapes.SWEEPS}
        by_set = {"grid": list(shapes.GRID), "hard": list(shapes.HARD)} | sweeps
        wanted = getattr(args, "sets", None) or ("grid", "hard", "sweep")
        by_set = {name: s for name, s in by_set.items() if name.split("-")[0] in wanted}
    return [
        (name, shapes.Case(cell, kind, *shape))
        for cell, kind in _only(args, ("lstm", "gru")) for name, some in by_set.items()
        for shape in some
    ]  # fmt: skip


def _varied(
    args: argparse.Namespace,
    cells: Sequence[str],
    default: Sequence[tuple[int, ...]],
    variants: Sequence[dict[str, Any]],
) -> list[tuple[str, shapes.Case]]:
    """Every shape in all variants, each the fields of a Case."""
    if args.shapes:
        default = [shapes.parse(s, 4) for s in args.shapes]
    elif args.quick:
        default = shapes.SEQUENCE_SHAPES_QUICK
    return [
        ("grid", shapes.Case(cell, kind, *shape, **fields))
        for cell, kind in _only(args, cells) for fields in variants for shape in default
    ]  # fmt: skip


def _peers(args: argparse.Namespace, cases: Sequence[tuple[str, shapes.Case]]) -> list[str]:
    """The selected peers that support any of the cases."""
    default = [name for name, entry in PEERS.items() if entry.default]
    peers = getattr(args, "peers", None) or default
    return [name for name in peers if any(PEERS[name].does(case) for _, case in cases)]


def _log(args: argparse.Namespace) -> TextIO | None:
    path = getattr(args, "log", None)
    return path.open("w", encoding="utf-8") if path else None


def _measure(
    args: argparse.Namespace, bench: str, cases: Sequence[tuple[str, shapes.Case]]
) -> None:
    from bench import sequences

    peers, log = _peers(args, cases), _log(args)
    result = sequences.run(cases, peers, _SWEEP_PEERS, _plan(args), args.threads, log, bench)
    _finish(result, _folder(args, result))


def _sequences(args: argparse.Namespace) -> None:
    _measure(args, "sequences", _cases(args))


def _stacks(args: argparse.Namespace) -> None:
    variants = [{"layers": 2, "directions": 2, "lengths": k} for k in shapes.LENGTHS]
    cells = ("lstm", "gru", "rnn")
    _measure(args, "stacks", _varied(args, cells, shapes.GRID, variants))


def _bfloat16(args: argparse.Namespace) -> None:
    variants = [{"dtype": "bfloat16"}, {}]
    _measure(args, "bfloat16", _varied(args, ("lstm", "gru"), shapes.BFLOAT16, variants))


def _layers(args: argparse.Namespace) -> None:
    from bench import layers

    cases: list[tuple[str, shapes.Case]] = []
    for name in getattr(args, "variants", None) or shapes.LAYER_VARIANTS:
        fields, kinds = shapes.LAYER_VARIANTS[name]
        some = _varied(args, ("lstm", "gru"), shapes.GRID, [{"as_layer": True, **fields}])
        cases += [(group, case) for group, case in some if case.kind in kinds]
    peers, log = _peers(args, cases), _log(args)
    result = layers.run(cases, peers, _plan(args), args.threads, args.quick, log)
    _finish(result, _folder(args, result))


def _inference(args: argparse.Namespace) -> None:
    from bench import inference

    only = set(getattr(args, "only", None) or ())
    cells = [cell for cell in ("lstm", "gru") if cell in only or not only & {"lstm", "gru"}]

    def cases(part: str, some: Sequence[tuple[int, ...]], **fields: Any) -> list[Any]:
        if only & {"sessions", "models"} and part not in only:
            return []
        if args.shapes or args.quick:
            some = [shapes.parse(s, 4) for s in args.shapes or ()] or shapes.SEQUENCE_SHAPES_QUICK
        return [
            (part, shapes.Case(cell, "serve", *shape, **fields)) for cell in cells for shape in some
        ]

    some = cases("sessions", shapes.INFERENCE)
    some += cases("models", shapes.FROZEN_MODELS, as_layer=True)
    peers, log = _peers(args, some), _log(args)
    result = inference.run(some, peers, _plan(args), args.threads, log)
    _finish(result, _folder(args, result))


def _calls(args: argparse.Namespace) -> None:
    default = shapes.SEQUENCE_SHAPES_QUICK if args.quick else shapes.CALL_SHAPES
    chosen = [shapes.parse(s, 4) for s in args.shapes] if args.shapes else default
    result = calls.run(chosen, _plan(args), args.threads)
    _finish(result, _folder(args, result))


def _jit(args: argparse.Namespace) -> None:
    from bench import jit

    only = set(getattr(args, "only", None) or ())
    cells = [cell for cell in jit.CELLS if cell in only or not only & set(jit.CELLS)]

    def cases(part: str, by_kind: dict[str, Sequence[tuple[int, ...]]]) -> list[shapes.Case]:
        if only & {"calls", "fit"} and part not in only:
            return []
        if args.shapes or args.quick:
            some = [shapes.parse(s, 4) for s in args.shapes or ()]
            by_kind = dict.fromkeys(by_kind, some or shapes.SEQUENCE_SHAPES_QUICK[:1])
        return [
            shapes.Case(cell, kind, *shape)
            for kind, some in by_kind.items() for cell in cells for shape in some
        ]  # fmt: skip

    calls_of = {"infer": shapes.JIT_CALL_SHAPES, "train": shapes.JIT_TRAIN_SHAPES}
    models = cases("fit", {"train": shapes.JIT_MODEL_SHAPES})
    result = jit.run(cases("calls", calls_of), models, _plan(args), args.threads)
    _finish(result, _folder(args, result))


def _memory(args: argparse.Namespace) -> None:
    default = shapes.SEQUENCE_SHAPES_QUICK if args.quick else shapes.MEMORY_SHAPES
    chosen = [shapes.parse(s, 4) for s in args.shapes] if args.shapes else default
    result = memory.run(chosen, args.threads)
    _finish(result, _folder(args, result))


def _recompute(args: argparse.Namespace) -> None:
    from bench import recompute

    shape = shapes.LONG_QUICK if args.quick else shapes.LONG
    if args.shapes:
        (shape,) = (shapes.parse(text, 4) for text in args.shapes)
    choices = recompute.QUICK if args.quick else recompute.CHOICES
    result = recompute.run(shape, choices, _plan(args), args.threads)
    _finish(result, _folder(args, result))


def _all(args: argparse.Namespace) -> None:
    if args.shapes:
        raise SystemExit("--shapes belongs to one of the benches")
    benches = (
        _cells, _sequences, _stacks, _bfloat16, _layers, _inference, _calls, _jit, _memory,
        _recompute,
    )  # fmt: skip
    for bench in benches:
        bench(args)


def _readme(args: argparse.Namespace) -> None:
    from bench import plot

    for line in pages.write(args.root, args.results):
        print(line)
    results = [
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        for file in (args.results / name for name in pages.HEADLINE)
    ]
    if results[0] is not None:
        print(plot.headline(*results, args.root / pages.CHART))


def _show(args: argparse.Namespace) -> None:
    _finish(json.loads(args.file.read_text(encoding="utf-8")), args.file.parent)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns the exit code."""
    args = _arguments(argv)
    verbs = {
        "cells": _cells, "sequences": _sequences, "stacks": _stacks, "bfloat16": _bfloat16,
        "layers": _layers, "calls": _calls, "jit": _jit,
        "inference": _inference, "memory": _memory, "recompute": _recompute, "all": _all,
        "readme": _readme, "show": _show,
    }  # fmt: skip
    # `timeout` and Ctrl-C end a run the same way: with the results so far.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    verbs[args.verb](args)
    return 0
