"""The table of files: which one a path has, now and at any commit of the history.

Theory of operation: the table has the newest event of each key, and an event that says
``delete`` removes its key. So the table at the position of the last event of a commit
is the tree of that commit. It keeps every old version, because its ``history`` is
longer than the log.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import braidlog
from examples.demo.events import Tree, decode
from examples.demo.files import read_lines
from examples.demo.githistory import GitHistory
from examples.demo.options import LOG
from examples.demo.replay import Difference, compare

__all__ = [
    "DELETES",
    "TABLE",
    "Past",
    "keep_table",
    "pasts",
    "positions_of",
    "trees_of",
]

TABLE: Final = "files"
"""Name of the table that the demo keeps."""

_HISTORY: Final = 1 << 40

# In JSON nothing else can look like this: quotes in a path are escaped.
DELETES: Final = r'pattern:"op": ?"delete"'
"""Which events delete the key."""

# Little, so that files are written and merged between the kills.
_MEMORY_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True)
class Past:
    """A commit, the position of its last event, and what differs from git there."""

    commit: str
    position: int
    files: int
    differences: list[Difference]


def keep_table(store: braidlog.Store) -> Any:
    """Return the table of the files, which is made of all events if it is not there."""
    return store.create_table(
        TABLE,
        log=LOG,
        history=_HISTORY,
        memory_bytes=_MEMORY_BYTES,
        deletes=DELETES,
        exist_ok=True,
    )


def trees_of(records: Iterable[Any]) -> dict[str, Tree]:
    """Return the files of each source that records of the table stand for."""
    trees: dict[str, Tree] = {}
    for record in records:
        event = decode(record.value)
        assert event.entry is not None  # noqa: S101, RUF100
        trees.setdefault(event.source, {})[event.path] = event.entry
    return trees


def positions_of(path: Path) -> dict[str, int]:
    """Return the position of the last event of each commit."""
    return {decode(line).commit: at for at, line in enumerate(read_lines(path), 1)}


def pasts(
    table: Any, history: GitHistory, positions: dict[str, int], count: int, seed: int
) -> Iterator[Past]:
    """Compare the table at random commits with the trees that git has of them."""
    commits = sorted(positions)
    chosen = random.Random(seed).sample(commits, min(count, len(commits)))
    for commit in chosen:
        expected = {history.source: history.tree(commit)}
        with table.at(positions[commit]) as snapshot:
            found = trees_of(snapshot)
        wrong = list(compare(expected, found))
        files = len(expected[history.source])
        yield Past(commit, positions[commit], files, wrong)
