"""The wire layer imports nothing that could wait, look at a clock or draw a number."""

import ast
from pathlib import Path

import pytest

import braidlog.wire

FILES = sorted(Path(braidlog.wire.__file__).parent.glob("*.py"))
ALLOWED = {
    "__future__",
    "abc",
    "base64",
    "collections",
    "dataclasses",
    "enum",
    "hashlib",
    "hmac",
    "itertools",
    "json",
    "msgspec",
    "re",
    "tomllib",
    "typing",
    "typing_extensions",
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or "."
            joined = {f"{module}.{alias.name}" for alias in node.names}
            names |= joined if module == "braidlog" else {module}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_imports_are_pure(path: Path) -> None:
    outside = {
        name
        for name in imported(path)
        if name.partition(".")[0] not in ALLOWED
        and name not in {"braidlog.errors", "braidlog._native"}
        and not name.startswith("braidlog.wire")
    }
    assert outside == set()


def test_only_frames_know_the_native_module() -> None:
    users = {path.stem for path in FILES if "braidlog._native" in imported(path)}
    assert users == {"frames"}
