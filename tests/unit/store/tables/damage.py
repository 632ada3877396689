"""Directories with tables that were killed and damaged, and what they may still say."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog import _native
from braidlog.errors import (
    CorruptionError,
    FormatError,
    InvalidArgumentError,
    LogError,
)
from braidlog.testing import MemoryStore

# What a read of damaged files may raise: nobody takes it for an answer.
REFUSED = (CorruptionError, FormatError)

SPEC = "value:int"


@dataclass
class World:
    """A store with the table `t`, its index `by`, and what both should have."""

    path: Path
    rows: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    store: braidlog.Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_(self.path)
        self.store.create_log("log", exist_ok=True)

    def put(self, count: int, *, keys: int = 50, size: int = 0) -> None:
        log = self.store.log("log")
        for _ in range(count):
            end = log.end
            key, value = b"%03d" % (end % keys), b"%d" % (end * 7 % 23)
            headers = [("pad", bytes(size))]
            self.rows[key] = log.append(value, key=key, headers=headers), value

    def delete(self, key: bytes) -> None:
        self.store.log("log").append(None, key=key)
        self.rows.pop(key, None)

    def killed(self, to: Path) -> Path:
        """Copy what a SIGKILL would leave, and end."""
        self.store._table_host().close()
        shutil.copytree(self.store.path, to)
        self.store.close()
        return to


def open_(path: Path) -> braidlog.Store:
    return braidlog.open(path, segment_bytes=64 << 10)


def table_of(store: braidlog.Store, name: str = "t") -> Any:
    return next(each for each in store._backend.tables() if each.name == name)


def tree_dir(path: Path, table: Any, tree: int) -> Path:
    return path / "tables" / f"{table.id:032x}" / f"{tree:032x}"


def manifest(tree: Path) -> Path:
    return tree / (tree / "CURRENT").read_text().split()[0]


def says(store: braidlog.Store, world: World) -> str:
    """Return "right" or the name of an error; fail if it says anything else."""
    table = store.table("t")
    try:
        found = {each.key: (each.position, each.value) for each in table}
        by = table.index("by")
        by.wait(timeout=30)
        index = [each.key for each in by]
        counts = table.verify()
    except REFUSED as error:
        named = str(store.path) in str(error)
        return type(error).__name__ if named else f"{error} names no file"
    assert found == world.rows
    wanted = sorted(world.rows, key=lambda key: (int(world.rows[key][1]), key))
    assert index == wanted
    indexes = len(table_of(store).indexes)
    assert counts == (len(wanted), indexes * len(wanted))
    return "right"


def edits(path: Path) -> Iterator[int]:
    """Yield where each edit of a manifest file begins, and where the last one ends."""
    data, at = path.read_bytes(), 64
    while at < len(data):
        yield at
        at += int.from_bytes(data[at : at + 4], "little")
    yield at


@contextlib.contextmanager
def refused(kind: type[LogError], words: str) -> Iterator[None]:
    """Expect an error with these words, and what to do next as its last sentence."""
    with pytest.raises(kind, match=words) as caught:
        yield
    # A wrong call is to be fixed; its message says how.
    assert caught.value.hint or kind is InvalidArgumentError
    assert str(caught.value).endswith(caught.value.hint)


def in_memory(disk: _native.MemoryDisk) -> MemoryStore:
    store = MemoryStore.__new__(MemoryStore)
    store._open({"segment_bytes": 64 << 10, "disk": disk}, read_only=False)
    return store
