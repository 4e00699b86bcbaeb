"""A headless Chromium, driven by the DevTools protocol over a pipe: pages, and what is wrong there.

Debian and Ubuntu: the package chromium.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 60.0


def find() -> str | None:
    """The browser's program, or None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One tab. Messages are JSON, each ended by a zero byte."""

    def __init__(self, read: int, write: int):
        self._read, self._write = read, write
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        end = time.monotonic() + _SECONDS
        while b"\0" not in self._buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError(f"the browser sent nothing for {_SECONDS:g} s")
            data = os.read(self._read, 1 << 20)
            if not data:
                raise EOFError("the browser ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol and gives its result."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self._events.append(answer)

    def size(self, width: int, height: int = 844) -> None:
        """Gives the window this size; a narrow one is that of a phone."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip

    def open(self, address: str) -> None:
        """Loads a page and all that belongs to it."""
        self._events.clear()
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            message = self._message()
            if "method" in message:
                self._events.append(message)

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page, of a promise when it is fulfilled."""
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and what did not load, since `open`."""
        self.value("0")  # what was sent before it has arrived
        found = []
        for event in self._events:
            params = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(f"exception: {params['exceptionDetails']}")
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                    found.append(f"console: {params['args']}")
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    found.append(f"log: {params['entry']['text']} {params['entry'].get('url')}")
                case "Network.loadingFailed" if not params.get("canceled"):
                    found.append(f"network: {params['errorText']}")
        return found

    def requests(self) -> list[str]:
        """The addresses that were asked for since `open`."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, file: pathlib.Path, *, whole: bool = False) -> pathlib.Path:
        """Writes what is seen, or the whole page, as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))
        return file


def _pipe() -> tuple[int, int]:
    """Both ends away from 3 and 4, the numbers that the browser reads from and writes to."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends)
    for end in ends:
        os.close(end)
    return high


@contextlib.contextmanager
def launched(program: str) -> Iterator[Browser]:
    """A browser of its own profile, ended with the block."""
    to_it, from_it = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
            f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # The shell gives the pipes the numbers.
        redirected = f'exec "$0" "$@" 3<&{to_it[0]} 4>&{from_it[1]}'
        process = subprocess.Popen(
            ["bash", "-c", redirected, *command],
            pass_fds=(to_it[0], from_it[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (to_it[0], from_it[1]):
            os.close(end)
        try:
            yield Browser(from_it[0], to_it[1])
        finally:
            for end in (to_it[1], from_it[0]):
                os.close(end)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
