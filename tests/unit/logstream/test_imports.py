"""The core imports nothing that could wait, look at a clock or draw a number."""

import ast
from pathlib import Path

import pytest

import braidlog.logstream

FILES = sorted(Path(braidlog.logstream.__file__).parent.glob("*.py"))
ALLOWED = {
    "__future__",
    "collections",
    "contextlib",
    "dataclasses",
    "enum",
    "itertools",
    "struct",
    "typing",
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_are_pure(path: Path) -> None:
    outside = {
        name
        for name in imported(path)
        if name.partition(".")[0] not in ALLOWED
        and name not in ("braidlog.errors", "braidlog.wire.messages")
        and not name.startswith("braidlog.logstream")
    }
    assert outside == set()
