"""Reads and writes the files of this folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import report
from benchmarks.rows import Row

__all__ = ["FOLDER", "NAMES", "Record", "load", "save"]

FOLDER: Final = Path(__file__).parent
NAMES: Final = (*("embedded", "cluster", "cluster_disk", "app", "tables", "spark"),)


@dataclass(frozen=True, slots=True)
class Record:
    """The results of one command, and what they depend on."""

    facts: Mapping[str, str]
    rows: Sequence[Row]


def save(
    name: str, facts: Mapping[str, str], rows: Sequence[Row], folder: Path = FOLDER
) -> Path:
    """Replace the record of a command, and return its file."""
    path = folder / f"{name}.jsonl"
    report.json_lines(path, facts, rows)
    return path


def load(name: str, folder: Path = FOLDER) -> Record | None:
    """Return the record of a command, None if there is none yet."""
    path = folder / f"{name}.jsonl"
    if not path.exists():
        return None
    header, *rows = (json.loads(line) for line in path.read_text().splitlines())
    return Record(header["header"], [Row.from_json(row) for row in rows])
