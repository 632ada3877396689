"""The cores import nothing that could wait, look at a clock or draw a number.

Which folders are cores is said once, by the contracts of import-linter in
`pyproject.toml`. Those forbid; this allows no more than what is listed here, and it
sees the native module, which is no part of the import graph.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import braidlog

ROOT = Path(braidlog.__file__).parent
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
EVERYWHERE = {
    *{"__future__", "collections", "contextlib", "dataclasses", "enum", "itertools"},
    *{"functools", "msgspec"},
    *{"braidlog.errors", "typing"},
}
ALLOWED = {
    "raft": {"operator", "struct", "zlib", "braidlog._native"},
    "logstream": {
        *{"struct", "braidlog.wire.features", "braidlog.wire.messages"},
        *{"braidlog._native"},
    },
    "metarepo": {
        *{"math", "operator", "statistics"},
        *{"braidlog.faultlog", "braidlog.logstream", "braidlog.names"},
        *{"braidlog.raft", "braidlog.wire", "braidlog._native"},
    },
    "faultlog": {"hashlib", "struct"},
    "shard": {"bisect", "struct", "braidlog.raft", "braidlog.wire", "braidlog._native"},
    "wire": {
        *{"abc", "base64", "hashlib", "hmac", "importlib", "json", "re"},
        *{"struct", "tomllib", "typing_extensions", "braidlog._native"},
    },
    "spark.sink.ledger": {"copy", "hashlib", "json", "braidlog.types"},
    # It reads the code of procedures: what that is made of, and where it came from.
    "app.determinism": {
        *{"ast", "builtins", "dis", "functools", "inspect", "linecache", "operator"},
        *{"re", "sys", "textwrap", "tokenize", "types"},
        *{"cbor2", "contextvars", "datetime", "decimal", "fractions", "hashlib"},
        *{"uuid", "braidlog.app.errors", "braidlog.app.findings"},
    },
    "app.execution": {
        *{"cbor2", "hashlib", "pathlib", "re", "struct", "uuid", "warnings", "zlib"},
        *{"braidlog.app.determinism", "braidlog.app.errors", "braidlog.app.findings"},
        *{"braidlog.app.fingerprint", "braidlog.app.procedure"},
        *{"braidlog.names", "braidlog.suggestions", "braidlog.types"},
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


def files(core: str) -> list[Path]:
    return sorted((ROOT / core.replace(".", "/")).rglob("*.py"))


def is_within(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


def test_all_cores_are_looked_at() -> None:
    settings = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]
    pure = {
        name.removeprefix("braidlog.")
        for contract in settings["contracts"]
        if "pure" in contract["name"]
        for name in contract["source_modules"]
    }
    assert pure == set(ALLOWED)
    assert [core for core in pure if not (ROOT / core.replace(".", "/")).is_dir()] == []


def test_imports_are_pure() -> None:
    found = []
    for core, special in ALLOWED.items():
        allowed = EVERYWHERE | special | {f"braidlog.{core}"}
        for path in files(core):
            impure = [name for name in imported(path) if not is_within(name, allowed)]
            found += [(path.relative_to(ROOT).as_posix(), name) for name in impure]
    assert found == []


def test_only_some_cores_know_the_native_module() -> None:
    paths = [path for core in ALLOWED for path in files(core)]
    users = [path for path in paths if "braidlog._native" in imported(path)]
    names = {path.relative_to(ROOT).as_posix() for path in users}
    assert names == {
        "logstream/core.py",
        "metarepo/leader/collector.py",
        "raft/log.py",
        "shard/state.py",
        "wire/connection.py",
    }
