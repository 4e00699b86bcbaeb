"""The examples of a Markdown page: their code, what they promise to print, what they print."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
from typing import Any


def python_blocks(page: str) -> list[str]:
    """The code between ```python fences."""
    return re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


def promised(code: str, page: str = "") -> list[str]:
    """What the comments at the end of `print(...)` lines say will be printed, in order.

    On a page it may also be in a ```text block that follows the example.
    """
    _, _, after = page.partition(f"```python\n{code}```\n\n```text\n")
    if after:
        return after.partition("```\n")[0].splitlines()
    lines = code.splitlines()
    calls = [
        node
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
    ]
    ends = sorted(call.end_lineno for call in calls)
    return [lines[end - 1].rpartition("  # ")[2] for end in ends]


def run_block(code: str, name: str, names: dict[str, Any] | None = None) -> list[str]:
    """Runs an example and gives the lines that it prints.

    It is a program of its own, or, given the names of earlier ones, goes on with these.
    """
    return _run(code, name, names)[0]


def run_for_names(code: str, name: str) -> dict[str, Any]:
    """Runs an example as a program of its own and gives what its names are in the end."""
    return _run(code, name)[1]


def _run(
    code: str, name: str, names: dict[str, Any] | None = None
) -> tuple[list[str], dict[str, Any]]:
    printed, names = io.StringIO(), {"__name__": name} if names is None else names
    # A tf.function reads its source back through this cache.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue().splitlines(), names
