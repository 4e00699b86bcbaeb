"""The site of `make docs`, built once for each process that tests it."""

from __future__ import annotations

import atexit
import functools
import html.parser
import http.server
import pathlib
import shutil
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from helpers.children import ROOT, assert_ok, run_python


@functools.cache
def built() -> pathlib.Path:
    """The folder of the site; what the generator warns of is an error."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="blockrnn-site-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = str(ROOT / "tools" / "docs.py")
    assert_ok(run_python([program, "--output", str(folder)]), "docs.py, warnings as errors")
    return folder


def pages() -> dict[str, str]:
    """The text of all pages by their addresses within the site."""
    return {
        page.relative_to(built()).as_posix(): page.read_text("utf-8")
        for page in sorted(built().rglob("*.html"))
        if page.name != "404.html"  # its links begin at the root of a host
    }


class Page(html.parser.HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.files: set[str] = set()  # images, scripts, styles
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (target := values.get("href")):
            self.links.add(target)
        elif target := values.get("src") or (values.get("href") if tag == "link" else None):
            self.files.add(target)


@functools.cache
def parsed(page: str) -> Page:
    return Page((built() / page).read_text("utf-8"))


def broken(page: str, target: str) -> str:
    """What is wrong with a link or address in a page, or ""."""
    parts = urllib.parse.urlsplit(target)
    if parts.scheme:
        return ""
    path = urllib.parse.unquote(parts.path)
    file = (built() / page).parent / path if path else built() / page
    if file.is_dir():
        file /= "index.html"
    if not file.exists():
        return f"{page}: {target}: no such file"
    anchor = urllib.parse.unquote(parts.fragment)
    if anchor and file.suffix == ".html":
        reached = file.resolve().relative_to(built().resolve()).as_posix()
        if anchor not in parsed(reached).anchors:
            return f"{page}: {target}: no such anchor"
    return ""


@contextmanager
def served() -> Iterator[str]:
    """The address at which a server has the site during the block."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any):
            super().__init__(*arguments, directory=str(built()))

        def log_message(self, *arguments: Any) -> None:
            """Prints nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
