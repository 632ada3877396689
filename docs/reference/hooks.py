"""Put documents from outside docs/ into the site, and check the API reference."""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
# Documents outside of docs/, and where the site has them.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "tests/evidence.md": "evidence.md",
}
_HOME = {target: source for source, target in OUTSIDE.items()}
# `sh cluster`: the second word is for the tests, and unknown to Markdown.
_FENCE = re.compile(r"^```(\w+) .*$", re.M)
_REFERENCE = re.compile(r"^::: ([\w.]+)$", re.M)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the documents outside of docs/."""
    for source, target in OUTSIDE.items():
        path = str(ROOT / source)
        files.append(File.generated(config, target, abs_src_path=path))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Let links between documents lead to where the site has them."""
    here = page.file.src_uri
    home = posixpath.dirname(_HOME.get(here, "docs/" + here))

    def moved(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(home, match[2]))
        if not target.endswith(".md"):
            return match[1]  # A program of the repository: the site has none.
        there = OUTSIDE.get(target, target.removeprefix("docs/"))
        link = posixpath.relpath(there, posixpath.dirname(here) or ".")
        return f"[{match[1]}]({link}{match[3] or ''})"

    return _FENCE.sub(r"```\1", _LINK.sub(moved, markdown))


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Refuse a page of the reference that lacks a public name of its module."""
    for module in _REFERENCE.findall(page.markdown):
        names = importlib.import_module(module).__all__
        missing = [
            n
            for n in names
            if not n.startswith("__") and f'id="{module}.{n}"' not in html
        ]
        if missing:
            raise PluginError(f"{page.file.src_uri} lacks {', '.join(missing)}")
    return html
