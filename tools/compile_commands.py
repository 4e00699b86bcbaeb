"""Writes compile_commands.json, for clangd and other tools, from what Bazel would run.

python tools/compile_commands.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import build
import cpp_tests
import instruction_sets

_TARGETS = "deps(//:libraries) + deps(tests(//tests/cpp/...))"


def compile_actions(isa: str) -> list[list[str]]:
    """The command lines of all C++ compilations of our own code."""
    done = build.run_bazel(
        "aquery",
        f'mnemonic("CppCompile", {_TARGETS})',
        "--output=jsonproto",
        *cpp_tests.engine_flags(isa, []),
        capture=True,
    )
    if done.returncode:
        sys.exit("Bazel could not list its actions.")
    return [action["arguments"] for action in json.loads(done.stdout).get("actions", [])]


def sources_of(source: str, execution_root: Path) -> list[str]:
    """The sources that a command compiles: a file of ours, or those that a made file includes."""
    if not source.startswith("bazel-out/"):
        return [] if source.startswith("external/") else [source]
    made = execution_root / source
    text = made.read_text(encoding="utf-8") if made.exists() else ""
    return re.findall(r'#include "(cc/[^"]+\.cc)"', text)


def entries(commands: list[list[str]], execution_root: Path) -> list[dict]:
    """One entry per source; of several instruction sets the last, which is the one in use."""
    found = {}
    for arguments in commands:
        source = arguments[arguments.index("-c") + 1]
        for file in sources_of(source, execution_root):
            found[file] = {
                "directory": str(execution_root),
                "file": str(build.ROOT / file),
                "arguments": [str(build.ROOT / file) if x == source else x for x in arguments],
            }
    return [found[file] for file in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=build.ROOT / "compile_commands.json")
    output = parser.parse_args().output
    cpp_tests.require_googletest()
    isa = instruction_sets.best()
    # Makes the sources that are included together, and the folders of headers.
    build.bazel_build("//cc/kernels:kernels_source")
    build.bazel_build("//cc/ops:ops_source")
    where = build.run_bazel("info", "execution_root", capture=True)
    commands = compile_actions(isa)
    commands.sort(key=lambda arguments: f"_{isa}/" in " ".join(arguments))
    written = entries(commands, Path(where.stdout.strip()))
    output.write_text(json.dumps(written, indent=1), encoding="utf-8")
    print(f"{len(written)} sources: {output}")


if __name__ == "__main__":
    main()
