"""The repository imports nothing that could wait, look at a clock or draw a number."""

import ast
from pathlib import Path

import pytest

import braidlog.metarepo

FILES = sorted(Path(braidlog.metarepo.__file__).parent.glob("*.py"))
ALLOWED = {"__future__", "collections", "dataclasses", "msgspec", "typing"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_are_pure(path: Path) -> None:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or ".")
    outside = {name for name in names if name.partition(".")[0] not in ALLOWED}
    assert {name for name in outside if not name.startswith("braidlog.")} == set()
