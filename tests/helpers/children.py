"""Runs a piece of a test in a process of its own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import IO

TESTS = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = TESTS / "helpers" / "programs"
ROOT = TESTS.parent


def environment(**extra: str) -> dict[str, str]:
    """The environment of a child: it finds the package and the test modules, and is quiet."""
    env = dict(os.environ)
    env["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(TESTS), *filter(None, [env.get("PYTHONPATH")])]
    )
    env["TF_CPP_MIN_LOG_LEVEL"] = "3"
    # A child of pytest-xdist is not a worker of it.
    for name in [n for n in env if n.startswith("PYTEST_XDIST")]:
        del env[name]
    env.update(extra)
    return env


def run_python(
    arguments: list[str],
    *,
    timeout: float = 600,
    fresh: bool = False,
    cwd: str | os.PathLike = ".",
    **extra: str,
) -> subprocess.CompletedProcess:
    """Runs this Python with `arguments`; the caller checks returncode, stdout and stderr.

    A fork of a process that has imported TensorFlow does it, unless it must be a `fresh` one: for
    variables of the environment that Python, malloc or TensorFlow read as they start. What -c and
    -m import is looked for in `cwd` first.
    """
    if fresh:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment(**extra),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder, name) for name in ("stdout", "stderr")]
        for output in outputs:
            output.touch()
        request = {
            "arguments": arguments,
            "timeout": timeout,
            "environment": environment(**extra),
            "cwd": os.path.abspath(cwd),
            "stdout": str(outputs[0]),
            "stderr": str(outputs[1]),
        }
        server, said = _fork_server()
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, f"the fork server ended with {server.wait()}:\n{_tail(said)}"
        texts = [output.read_text(errors="replace") for output in outputs]
    ended = json.loads(answer)
    if ended["timed_out"]:
        raise subprocess.TimeoutExpired(arguments, timeout, *texts)
    return subprocess.CompletedProcess(arguments, ended["returncode"], *texts)


@functools.cache
def _fork_server() -> tuple[subprocess.Popen, IO[str]]:
    """One for each process that runs tests, with which it ends; and the file of what it says."""
    said = tempfile.TemporaryFile("w+")
    command = [sys.executable, str(TESTS / "helpers" / "fork_server.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": said}
    server = subprocess.Popen(command, env=environment(), text=True, **pipes)
    # Python does not run what is registered where a worker's process is killed; then the server
    # reads the end of its input.
    atexit.register(_end, server, said)
    return server, said


def _end(server: subprocess.Popen, said: IO[str]) -> None:
    server.communicate()
    said.close()


def _tail(file: IO[str]) -> str:
    file.seek(0)
    return file.read()[-3000:]


def run_code(code: str, *, timeout: float = 600, **extra: str) -> subprocess.CompletedProcess:
    """Runs a program given as text."""
    return run_python(["-c", code], timeout=timeout, **extra)


def with_little_memory(group: str) -> dict[str, dict[str, int]]:
    """How often each run of a group of allocation_child.py ended how."""
    result = run_python(
        [str(PROGRAMS / "allocation_child.py"), group],
        fresh=True,
        # TensorFlow's oneDNN allocator and malloc's arenas keep what was freed, and a limit on
        # address space would find nothing to refuse. The one arena has the small blocks that the
        # child leaves to all threads.
        TF_ENABLE_ONEDNN_OPTS="0",
        MALLOC_MMAP_THRESHOLD_="65536",
        MALLOC_ARENA_MAX="1",
    )
    out = assert_ok(result, f"{group} with little memory")
    return json.loads(out.strip().splitlines()[-1])


def assert_ok(result: subprocess.CompletedProcess, what: str) -> str:
    """Fails with the child's output unless its exit status is 0; returns its standard output."""
    tail = (result.stdout[-3000:] + "\n" + result.stderr[-3000:]).strip()
    assert result.returncode == 0, f"{what} ended with {result.returncode}:\n{tail}"
    return result.stdout
