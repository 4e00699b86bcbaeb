"""python tools/docs.py [--output FOLDER]: README, guides and API reference as one static site.

The sources are laid out as in the repository, so that the links in them hold: the pages as they
are, the programs in examples/ as pages of code, the API reference from the docstrings.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The pages in their order. A page of docs/ that is not listed comes at the end of the guides.
_GUIDES = (
    "keras", "functions", "weights", "gru_variants", "inference", "freeze", "low_precision",
    "serving", "xla", "cudnn",
)  # fmt: skip
_PERFORMANCE = ("performance", "benchmarks")
_REFERENCE = ("ops", "differences", "limits", "environment", "glossary")
_PROJECT = ("CHANGELOG", "CONTRIBUTING", "ARCHITECTURE", "SECURITY")
# What is shown as a page of code, by its ending.
_LANGUAGES = {".py": "python", ".c": "c", ".cc": "cpp", ".h": "c", ".sh": "sh"}
_CSS = """
/* Equations and shapes are wide; a phone scrolls them, not the page. */
.md-typeset pre > code { white-space: pre; }
.md-typeset code { overflow-wrap: anywhere; }
.md-typeset td:first-child { min-width: 9em; }
.md-typeset td code, .md-typeset th code { overflow-wrap: normal; word-break: normal; }
"""


def title_of(page: str) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", page, flags=re.MULTILINE)
    if not found:
        raise ValueError("a page of the site begins with a heading: # …")
    return found[1]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _list_page(folder: Path, title: str, intro: str) -> None:
    """An index.md that links to all pages of a folder."""
    pages = sorted(page for page in folder.rglob("*.md") if page.name != "index.md")
    lines = [
        f"- [{title_of(page.read_text(encoding='utf-8'))}]({page.relative_to(folder)})"
        for page in pages
    ]
    _write(folder / "index.md", "\n".join([f"# {title}", "", intro, "", *lines, ""]))


def _code_page(file: Path, target: Path) -> None:
    """A page with the text of a program, which the search would show at length."""
    text = file.read_text(encoding="utf-8").rstrip()
    language = _LANGUAGES.get(file.suffix, "text")
    hidden = "---\nsearch:\n  exclude: true\n---\n\n"
    _write(target, f"{hidden}# {file.name}\n\n``````{language}\n{text}\n``````\n")


def _to_pages(text: str, folder: Path, source: Path) -> str:
    """Leads links to programs and folders to the pages that show them.

    A source file that is no example gets its page here, outside of the navigation.
    """

    def rewritten(found: re.Match[str]) -> str:
        address, _, anchor = found[1].partition("#")
        if not address or "://" in address or address.endswith((".md", ".png")):
            return found[0]
        file = (ROOT / folder / address).resolve()
        target = source / f"{file.relative_to(ROOT)}.md"
        if file.suffix in _LANGUAGES and not target.exists():
            _code_page(file, target)
        for page in (f"{address.rstrip('/')}/index.md", f"{address}.md"):
            if (source / folder / page).resolve().exists():
                return f"]({page}{'#' + anchor if anchor else ''})"
        raise ValueError(f"{folder}: the site has no page for the link {found[1]}")

    return re.sub(r"\]\(([^)\s]+)\)", rewritten, text)


def lay_out(source: Path) -> None:
    """Writes the site's sources: Markdown, plots and style."""
    from tools import api_pages

    pages = [ROOT / f"{name}.md" for name in ("README", *_PROJECT)]
    pages += sorted((ROOT / "docs").glob("*.md"))
    pages += sorted((ROOT / "docs").glob("*/*.md"))
    for file in sorted((ROOT / "examples").rglob("*")):
        if file.suffix in _LANGUAGES:
            _code_page(file, source / f"{file.relative_to(ROOT)}.md")
    _code_page(ROOT / "LICENSE", source / "LICENSE.md")
    for page in pages:
        _write(source / page.relative_to(ROOT), page.read_text(encoding="utf-8"))
    _list_page(source / "examples", "Example programs", "As they are in the repository.")
    _list_page(source / "docs" / "adr", "Decisions", "What was decided, and why.")
    _list_page(source / "docs" / "notes", "Measurements", "What each step gained.")
    for page in pages:
        place = page.relative_to(ROOT)
        text = (source / place).read_text(encoding="utf-8")
        _write(source / place, _to_pages(text, place.parent, source))
    for plot in (ROOT / "bench" / "results").glob("*.png"):
        target = source / plot.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(plot, target)
    _write(source / "site.css", _CSS)
    for name, text in api_pages.pages().items():
        _write(source / "api" / name, text)


def navigation(source: Path) -> list[dict[str, object]]:
    """The site's contents: titles and pages."""

    def entries(paths: Sequence[str]) -> list[dict[str, str]]:
        return [{title_of((source / p).read_text(encoding="utf-8")): p} for p in paths]

    def docs(names: Sequence[str]) -> list[str]:
        return [f"docs/{name}.md" for name in names]

    def folder(name: str) -> list[dict[str, str] | str]:
        pages = sorted(p for p in (source / name).rglob("*.md") if p.name != "index.md")
        return [f"{name}/index.md", *entries([str(p.relative_to(source)) for p in pages])]

    listed = {*_GUIDES, *_PERFORMANCE, *_REFERENCE}
    others = sorted(p.stem for p in (source / "docs").glob("*.md") if p.stem not in listed)
    return [
        {"Start": "README.md"},
        {"Guides": entries(docs([*_GUIDES, *others]))},
        {"API": folder("api")},
        {"Performance": entries(docs(_PERFORMANCE))},
        {"Reference": entries(docs(_REFERENCE))},
        {"Examples": folder("examples")},
        {
            "Project": [
                *entries([f"{name}.md" for name in _PROJECT]),
                {"Decisions": folder("docs/adr")},
                {"Measurements": folder("docs/notes")},
                {"License": "LICENSE.md"},
            ]
        },
    ]


def build(output: Path) -> None:
    """Builds the site; whatever its generator warns of is an error."""
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")  # of the theme, about a later generator
    try:
        from mkdocs.commands.build import build as build_site
        from mkdocs.config import load_config
    except ImportError as error:
        sys.exit(f"{error}: install requirements-dev.txt, or run `make docs` without PYTHON")
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        lay_out(source)
        config = load_config(
            str(ROOT / "tools" / "mkdocs.yml"),
            docs_dir=folder,
            site_dir=str(output.resolve()),
            nav=navigation(source),
            strict=True,
        )
        build_site(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "site")
    folder = parser.parse_args().output
    sys.path.insert(0, str(ROOT))
    build(folder)
    count = sum(1 for _ in folder.rglob("*.html"))
    print(f"{count} pages: {folder / 'index.html'}")
    print(f"The search needs a server: {sys.executable} -m http.server --directory {folder}")


if __name__ == "__main__":
    main()
