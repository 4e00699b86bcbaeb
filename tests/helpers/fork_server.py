"""A Python that has imported TensorFlow and forks itself for each program that children.py runs.

The import takes seconds, and the tests start dozens of processes that need it. It starts none of
TensorFlow's threads, so a fork of this process is as good as a fresh one.

Requests are lines of JSON on standard input, answers are lines of JSON on what was standard output;
a program's own input and output are files. The process ends with its input.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import sys

import tensorflow  # noqa: F401


def become(request: dict) -> None:
    """Gives this fork the files, the folder and the environment of the process asked for."""
    for number, path in enumerate((os.devnull, request["stdout"], request["stderr"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])


def run(arguments: list[str]) -> None:
    """Does what `python arguments` does: [-c, code], [-m, module, ...] or [program, ...]."""
    if arguments[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[2:]], ""
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    elif arguments[0] == "-m":
        sys.argv, sys.path[0] = arguments[1:], os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


def wait(pid: int, timeout: float) -> dict:
    """How the process ended; it is killed if it has not after `timeout` seconds."""
    process = os.pidfd_open(pid)
    ended, _, _ = select.select([process], [], [], timeout)
    os.close(process)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return {"returncode": os.waitstatus_to_exitcode(status), "timed_out": not ended}


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    # Collecting would write to, and so copy, all that a fork shares with this process.
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            become(request)
            run(request["arguments"])
            return  # to the end of a Python like any other, where a library may crash, too
        os.write(answers, json.dumps(wait(pid, request["timeout"])).encode() + b"\n")


if __name__ == "__main__":
    main()
