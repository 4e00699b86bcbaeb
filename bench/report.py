"""Tables of all rows of a result: plain text for the terminal, Markdown for docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from bench import timing
from bench.peers import is_ours
from bench.provenance import measured
from bench.tables import (
    KINDS,
    dims,
    markdown_table,
    missing,
    number,
    percent,
    text_table,
)

# Targets of sequences relative to the fastest peer, complete tf.function call, float32: at each
# shape, and on geometric mean; and the share of the measured GEMM peak where B >= 48, H >= 256.
TARGETS = {
    "train": {"each": 1.2, "mean": 2.0, "peak": 0.8},
    "infer": {"each": 1.0, "mean": 1.3, "peak": 0.9},
}
PEAK_FROM = {"B": 48, "H": 256}
# Targets of our block ops relative to TensorFlow's own, and the largest share of the time of full
# rows that a batch of rows of half the length may take.
_OVER_TENSORFLOW = {"each": 0.95, "mean": 2.0}
_HALF_LENGTHS = 0.6
_MEANING = {
    "stacks": " Two layers, both directions. `spread`: rows of all lengths from 1 to T; `half`: all"
    " rows half as long; otherwise all rows have T steps."
}


def _call_cost(result: dict[str, Any]) -> list[str]:
    """TensorFlow's share of the small rows."""
    cost = result.get("empty_call_ms")
    if not cost:
        return []
    return [
        f"Calling an empty tf.function takes {number(cost)} ms here; none of our rows can be below"
        " that."
    ]


def label(row: dict[str, Any]) -> str:
    """The label of a row of sequences: B, T, I, H and every property that is not the default."""
    special = {"lengths": "full", "dtype": "float32"}
    more = [row[key] for key, usual in special.items() if row.get(key, usual) != usual]
    return " ".join([dims(row["shape"]), *more])


def _lost_in_bold(text: str, lost: bool) -> str:
    return f"**{text}**" if lost else text


def cells_text(result: dict[str, Any]) -> str:
    """All of the cells result as text, slower rows marked."""
    floor = result["floor"]
    rows = []
    for row in result["rows"]:
        ratio = row["ratio"]
        mark = f"<< under {floor}" if ratio < floor else "< slower" if ratio < 1 else ""
        spread = "/".join(
            f"{100 * (row[who]['p75_ms'] - row[who]['p25_ms']) / row[who]['median_ms']:.0f}%"
            for who in ("ours", "tf")
        )
        rows.append([
            row["op"], dims(row["shape"]), number(1e3 * row["ours"]["median_ms"]),
            number(1e3 * row["ours"]["min_ms"]), number(1e3 * row["tf"]["median_ms"]),
            number(1e3 * row["tf"]["min_ms"]), spread, f"{ratio:.2f}",
            f"{row['ratio_of_minima']:.2f}", mark,
        ])  # fmt: skip
    head = [
        "op",
        "B, I, H",
        "ours us",
        "min",
        "TensorFlow us",
        "min",
        "IQR",
        "ratio",
        "of minima",
        "",
    ]
    parts = [text_table(head, rows), ""]
    for op, s in result["summary"].items():
        parts.append(
            f"{op}: mean ratio {s['arithmetic_mean']:.2f} (geometric {s['geometric_mean']:.2f}),"
            f" lowest {s['lowest']:.2f}, slower at {s['slower']} of {s['shapes']} shapes,"
            f" under {floor} at {s['under_floor']}"
        )
    cost = 1e3 * result["function_call_ms"]
    parts.append(f"Calling a tf.function takes {cost:.0f} us, shared by the ops in it.")
    if result["null"]:
        parts.append("Null run: both contenders are TensorFlow's; the ratios are the noise.")
    return "\n".join(parts)


def cells_markdown(result: dict[str, Any]) -> str:
    """Ratios at all shapes, one column per op, slower ones in bold."""
    ops = list(result["summary"])
    table = {(row["op"], tuple(row["shape"])): row["ratio"] for row in result["rows"]}

    def cell(op: str, shape: tuple[int, ...]) -> str:
        ratio = table.get((op, shape))
        return "" if ratio is None else _lost_in_bold(f"{ratio:.2f}", ratio < 1)

    shapes = dict.fromkeys(tuple(row["shape"]) for row in result["rows"])
    rows = [[dims(shape), *(cell(op, shape) for op in ops)] for shape in shapes]
    for key, label in (("arithmetic_mean", "mean"), ("geometric_mean", "geometric mean")):
        rows.append([label, *(f"{result['summary'][op][key]:.2f}" for op in ops)])
    return "\n\n".join([
        "TensorFlow's time over ours, float32, one alternating run; above 1 we are faster, below 1"
        " (bold) slower. `make bench` measures again.",
        markdown_table(["B, I, H", *(f"`{op}`" for op in ops)], rows),
        measured(result),
    ])  # fmt: skip


def groups(result: dict[str, Any]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The rows for the table, not those of the sweeps, by (cell, kind)."""
    out: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in result["rows"]:
        if not row["set"].startswith("sweep"):
            out.setdefault((row["cell"], row["kind"]), []).append(row)
    return out


def peer_names(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The peers that have a time in any of these rows."""
    return list(dict.fromkeys(n for r in rows for n, e in r["peers"].items() if "median_ms" in e))


def _ratio_mark(ratio: float, kind: str) -> str:
    return "<<" if ratio < 1 else "<" if ratio < TARGETS[kind]["each"] else ""


def _sequence_lines(rows: Sequence[dict[str, Any]], names: Sequence[str], peak: float):
    """Head and cells of one table; a cell is (text, ratio or None)."""
    ours = [n for n in names if is_ours(n)]
    head = ["B, T, I, H", *(f"{n} ms" for n in names)]
    head += [f"{n} / fastest" for n in ours] + [f"{n} of peak" for n in ours]
    lines = []
    for row in rows:
        line: list[tuple[str, float | None]] = [(label(row), None)]
        for name in names:
            entry = row["peers"].get(name, {})
            text = number(entry["median_ms"]) if "median_ms" in entry else "-"
            line.append((text + ("*" if name == row["fastest"] else ""), None))
        for name in ours:
            ratio = row["ratios"].get(name)
            line.append(("-" if ratio is None else f"{ratio:.2f}", ratio))
        for name in ours:
            entry = row["peers"].get(name, {})
            share = entry["gflops"] / peak if "gflops" in entry and peak else None
            line.append(("-" if share is None else percent(share), None))
        lines.append(line)
    return head, lines


def _sequence_summary(rows: Sequence[dict[str, Any]], kind: str, peak: float) -> list[str]:
    """One sentence for each of our contenders: mean, losses, targets missed."""
    target = TARGETS[kind]
    out = []
    for name in dict.fromkeys(n for row in rows for n in row["ratios"]):
        ratios = [row["ratios"][name] for row in rows if name in row["ratios"]]
        large = [
            row["peers"][name]["gflops"] / peak
            for row in rows
            if name in row["ratios"] and peak
            and row["shape"][0] >= PEAK_FROM["B"] and row["shape"][3] >= PEAK_FROM["H"]
        ]  # fmt: skip
        text = (
            f"{name}: geometric mean {timing.geometric_mean(ratios):.2f} (target {target['mean']}),"
            f" lowest {min(ratios):.2f}, under {target['each']} at"
            f" {sum(r < target['each'] for r in ratios)} of {len(ratios)} shapes, slower than the"
            f" fastest peer at {sum(r < 1 for r in ratios)}"
        )
        if large:
            text += (
                f"; where B >= {PEAK_FROM['B']} and H >= {PEAK_FROM['H']},"
                f" {percent(min(large))} to {percent(max(large))} of the GEMM peak"
                f" (target {100 * target['peak']:.0f})"
            )
        out.append(text + ".")
    return out


def over_tensorflow(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Our block op relative to TensorFlow's own, in training together with the Grad ops."""
    ratios = [
        row["peers"]["tf_raw"]["median_ms"] / row["peers"]["ours_block"]["median_ms"]
        for row in rows
        if all("median_ms" in row["peers"].get(name, {}) for name in ("ours_block", "tf_raw"))
    ]
    if not ratios:
        return []
    each, mean = _OVER_TENSORFLOW["each"], _OVER_TENSORFLOW["mean"]
    return [
        f"ours_block over tf_raw: geometric mean {timing.geometric_mean(ratios):.2f} (target"
        f" {mean}), lowest {min(ratios):.2f}, under {each} at {sum(r < each for r in ratios)} of"
        f" {len(ratios)} shapes."
    ]


def saved_by_lengths(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The time of rows of half the length, and of spread lengths, relative to full ones."""
    times: dict[tuple[str, str], dict[tuple[Any, ...], float]] = {}
    for row in rows:
        for name, entry in row["peers"].items():
            if "median_ms" in entry:
                key = name, row.get("lengths", "full")
                case = row["cell"], row["kind"], *row["shape"]
                times.setdefault(key, {})[case] = entry["median_ms"]
    out = []
    for (name, lengths), some in times.items():
        full = times.get((name, "full"), {})
        shares = [ms / full[case] for case, ms in some.items() if case in full]
        if lengths == "full" or not shares or not is_ours(name):
            continue
        text = (
            f"{name}: {lengths} lengths take {min(shares):.2f} to {max(shares):.2f} of the"
            f" time of full ones, geometric mean {timing.geometric_mean(shares):.2f}"
        )
        if lengths == "half":
            above = sum(share > _HALF_LENGTHS for share in shares)
            text += f", above {_HALF_LENGTHS} (the target) at {above} of {len(shares)} shapes"
        out.append(text + ".")
    return out


def _sentences(rows: Sequence[dict[str, Any]], kind: str, peak: float) -> list[str]:
    """All sentences below a table."""
    return [*_sequence_summary(rows, kind, peak), *over_tensorflow(rows), *saved_by_lengths(rows)]


# Heading, contender and type of each column of the bfloat16 table; the first is ours.
_BFLOAT16 = (
    ("bfloat16, AVX512-BF16", "ours", "bfloat16"),
    ("bfloat16, AVX-512 alone", "ours_v4", "bfloat16"),
    ("float32", "ours", "float32"),
    ("PyTorch, bfloat16", "torch", "bfloat16"),
)


def bfloat16_times(result: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, float]]:
    """The median ms under each heading, by (cell, kind, shape)."""
    headings = {(name, dtype): heading for heading, name, dtype in _BFLOAT16}
    out: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in result["rows"]:
        for name, entry in row["peers"].items():
            heading = headings.get((name, row["dtype"]))
            if heading and "median_ms" in entry:
                what = row["cell"], row["kind"], tuple(row["shape"])
                out.setdefault(what, {})[heading] = entry["median_ms"]
    return out


def bfloat16_gains(times: dict[str, float]) -> dict[str, float]:
    """The times of the others over ours, by heading."""
    ours, *others = (heading for heading, *_ in _BFLOAT16)
    return {name: times[name] / times[ours] for name in others if name in times and ours in times}


def bfloat16_markdown(result: dict[str, Any]) -> str:
    """The times of bfloat16 with and without AVX512-BF16, and of float32."""
    headings, rows = [heading for heading, *_ in _BFLOAT16], []
    for (cell, kind, shape), times in bfloat16_times(result).items():
        gains = bfloat16_gains(times)
        lost = any(gain < 1 for gain in gains.values())
        cells = [number(times[name]) if name in times else "-" for name in headings]
        cells += [
            _lost_in_bold(f"{gains[name]:.2f}", gains[name] < 1) if name in gains else "-"
            for name in headings[1:]
        ]
        rows.append([
            _lost_in_bold(f"{cell.upper()} {KINDS[kind]}, {dims(shape)}", lost), *cells
        ])  # fmt: skip
    head = ["B, T, I, H", *(f"{heading}, ms" for heading in headings)]
    head += ["gain of AVX512-BF16", "gain over float32", "gain over PyTorch"]
    return "\n\n".join([
        "Median ms of one call of `tf_blockrnn.lstm` and `gru`, all contenders alternating in one"
        " run; bold where the first column is not the fastest.",
        markdown_table(head, rows),
        measured(result),
    ])  # fmt: skip


def sequences_text(result: dict[str, Any]) -> str:
    """All of the sequences result as text; * is the fastest peer, << a row where we are slower."""
    peak = result["peak_gflops"]
    parts = [f"float32 GEMM peak, measured: {peak:.0f} GFLOP/s ({result['peaks'][0]['by']})"]
    for (cell, kind), rows in groups(result).items():
        head, lines = _sequence_lines(rows, peer_names(rows), peak)
        marks = [
            max((_ratio_mark(r, kind) for _, r in line if r is not None), default="", key=len)
            for line in lines
        ]
        table = [[t for t, _ in line] + [m] for line, m in zip(lines, marks, strict=True)]
        parts += ["", f"{cell.upper()} {KINDS[kind]}", text_table([*head, ""], table)]
        parts += _sentences(rows, kind, peak)
    parts += ["", *_call_cost(result), *missing(result["rows"])]
    return "\n".join(parts)


def _bold_losses(line: Sequence[tuple[str, float | None]]) -> list[str]:
    """The cells of a row, its ratios below 1 in bold, and its name if it has any."""
    lost = [ratio is not None and ratio < 1 for _, ratio in line]
    (name, _), *rest = line
    cells = [text.replace("*", "\\*") for text, _ in rest]
    return [
        _lost_in_bold(name, any(lost)),
        *(_lost_in_bold(text, bold) for text, bold in zip(cells, lost[1:], strict=True)),
    ]


def sequences_markdown(result: dict[str, Any], plots: Sequence[tuple[str, str]] = ()) -> str:
    """All rows; those where we are slower are bold. `plots` are (description, address)."""
    peak = result["peak_gflops"]
    parts = [
        "Median ms of one call, float32, all contenders alternating in one run."
        + _MEANING.get(result["bench"], "")
        + " `/ fastest` is"
        " the time of the fastest peer (\\*) over ours: above 1 we are faster, bold where we are"
        " slower. `of peak` is the speed of the GEMMs relative to a large GEMM on the same machine"
        f" ({peak:.0f} GFLOP/s). `make bench` measures again.",
        *(f"![{description}]({address})" for description, address in plots),
    ]
    for (cell, kind), rows in groups(result).items():
        head, lines = _sequence_lines(rows, peer_names(rows), peak)
        table = [_bold_losses(line) for line in lines]
        parts += [f"**{cell.upper()}, {KINDS[kind]}**", markdown_table(head, table)]
        parts += [text.replace("*", "\\*") for text in _sentences(rows, kind, peak)]
    notes = "; ".join(f"{n}: {note}" for n, note in result["peer_notes"].items() if note)
    parts += [
        f"Contenders: {notes}."
        + (
            " The GRU of `ours_block` has the reset gate before the GEMM, and so do the peers"
            " whose names end in `_before`; all others have it after."
            if "ours_block" in result["peer_notes"]
            else ""
        ),
        *_call_cost(result),
        measured(result),
    ]
    return "\n\n".join(parts)


def replace_section(page: str, name: str, text: str) -> str:
    """`page` with `text` between its markers of `name`; ValueError if they are missing."""
    begin, end = f"<!-- bench:begin {name} -->", f"<!-- bench:end {name} -->"
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no section {begin} ... {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{text}\n\n{end}", page)
