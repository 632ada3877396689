"""The cores import nothing that could wait, look at a clock or draw a number."""

import ast
from collections.abc import Iterator
from pathlib import Path

import braidlog

ROOT = Path(braidlog.__file__).parent
EVERYWHERE = {"__future__", "collections", "dataclasses", "msgspec", "typing"}
SHARED = {"contextlib", "enum", "itertools"}
ALLOWED = {
    "raft": {*SHARED, "bisect", "operator", "struct", "zlib", "braidlog.errors"},
    "logstream": {*SHARED, "struct", "braidlog.errors", "braidlog.wire.messages"},
    "metarepo": {
        "braidlog.errors",
        "braidlog.faultlog.configuration",
        "braidlog.faultlog.record",
        "braidlog.logstream",
        "braidlog.names",
        "braidlog.raft",
        "braidlog.wire",
    },
    "wire": {
        *{"abc", "base64", "enum", "hashlib", "hmac", "importlib", "itertools", "json"},
        *{"re", "tomllib", "typing_extensions"},
        *{"braidlog.errors", "braidlog._native"},
    },
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or "."
            joined = [f"{module}.{alias.name}" for alias in node.names]
            yield from joined if module == "braidlog" else [module]


FILES = [path for name in ALLOWED for path in sorted((ROOT / name).glob("*.py"))]


def is_within(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


def test_imports_are_pure() -> None:
    assert {path.parent.name for path in FILES} == set(ALLOWED)
    found = []
    for path in FILES:
        package = path.parent.name
        allowed = EVERYWHERE | ALLOWED[package] | {f"braidlog.{package}"}
        impure = [name for name in imported(path) if not is_within(name, allowed)]
        found += [(f"{package}/{path.name}", name) for name in impure]
    assert found == []


def test_only_frames_know_the_native_module() -> None:
    users = {path.stem for path in FILES if "braidlog._native" in imported(path)}
    assert users == {"frames"}
