"""Looking at a node's files without opening the log, verifying and repairing them.

Nothing here takes the lock or changes a file of the directory, so all of it works
beside a running writer (which `repair` refuses: what is in use needs no repair). Damage
is shown, not raised, as far as anything can be shown at all.

| function | returns |
|---|---|
| `segments`, `frames`, `index`, `samples`, `manifest` | rows |
| `state` | what the next open would find |
| `verify` | a `Report` of every checksum and invariant |
| `repair_plan`, `repair` | what would be lost, and a new directory without it |
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from braidlog import _native
from braidlog.errors import NotFoundError
from braidlog.store.inspection_rows import (
    Batch,
    Cursor,
    Damage,
    Edit,
    Finding,
    Frame,
    IndexEntry,
    IndexState,
    LogState,
    LostRange,
    Producer,
    Range,
    RecoveredLog,
    Sample,
    Segment,
    State,
    TableState,
    Watermark,
)

Progress: TypeAlias = Callable[[int, int], object]
"""Called with the bytes done and the bytes in all, a few times a segment."""

Keep: TypeAlias = Literal["all", "most", "newest", "oldest"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification saw; `findings` is empty where nothing is damaged."""

    segments: int
    frames: int
    records: int
    bytes: int
    findings: list[Finding]
    notes: list[Finding]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair keeps and loses; `guesses` tells what else is lost or made up."""

    logs: list[RecoveredLog]
    losses: list[LostRange]
    guesses: list[str]
    damage: list[Damage]


@dataclass(frozen=True, slots=True)
class Repaired:
    """A new directory: what it lacks, and its verification, which found no damage."""

    target: Path
    plan: Plan
    report: Report


def segments(data: Path) -> Iterable[Segment]:
    """List the slots: segments from the oldest on, then those that are free."""
    for row in _native.inspect_segments(_existing(data)):
        logs = [Range(**part) for part in row.pop("logs")]
        yield Segment(**row, logs=logs)


def frames(
    data: Path, segment: int, *, log: str | None = None, offset: int = 0
) -> Iterator[Frame]:
    """List the frames of a segment that end behind `offset`, the bad ones too.

    Bytes that are no frame are one row with the reason; the frames behind them follow.
    """
    for row in _native.inspect_frames(_existing(data), segment, log, offset):
        header = row.pop("header") or {}
        batch = row.pop("batch")
        yield Frame(**row, **header, batch=Batch(**batch) if batch else None)


def index(
    data: Path, segment: int | None = None, *, log: str | None = None
) -> Iterable[IndexEntry]:
    """Total what each segment holds of each log."""
    rows = _native.inspect_index(_existing(data), segment, log)
    return (IndexEntry(**row) for row in rows)


def samples(
    data: Path, segment: int | None = None, *, log: str | None = None
) -> Iterable[Sample]:
    """List every sample of the number index."""
    rows = _native.inspect_samples(_existing(data), segment, log)
    return (Sample(**row) for row in rows)


def manifest(data: Path) -> Iterable[Edit]:
    """List the operations of the manifest's edits."""
    return (Edit(**row) for row in _native.inspect_manifest(_existing(data)))


def state(data: Path) -> State:
    """Tell what the next open would find."""
    row = _native.inspect_state(_existing(data))
    mark = row.pop("watermark")
    logs = [_log(log) for log in row.pop("logs")]
    tables = [_table(table) for table in row.pop("tables")]
    salvaged = row.pop("salvaged")
    return State(
        **row,
        watermark=Watermark(**mark) if mark else None,
        salvaged=_note(salvaged),
        logs=logs,
        tables=sorted(tables, key=lambda table: table.name),
    )


def verify(data: Path, *, progress: Progress | None = None) -> Report:
    """Check every checksum and every invariant; change nothing.

    Beside a running writer the newest segment is checked up to what is durable.

    Raises:
        NotFoundError: There is no node in the directory.
    """
    return _report(_native.verify(_existing(data), progress))


def repair_plan(
    data: Path, *, keep: Keep = "all", progress: Progress | None = None
) -> Plan:
    """Tell what a repair would keep and lose.

    Of a log with damage in its middle both sides are kept, with a declared hole between
    them: lost records keep their positions. `keep` may name one side instead: the one
    with most records, the newest, the oldest.

    Raises:
        LockedError: A writer is running.
        NotFoundError: No segment is left.
    """
    return _plan(_native.repair_plan(_existing(data), keep, progress))


def repair(
    data: Path, target: Path, *, keep: Keep = "all", progress: Progress | None = None
) -> Repaired:
    """Make a new directory at `target` of everything that can be saved.

    Records keep their positions, epochs and producer sequences, logs their names, ids,
    options and cursors. `data` is only read. The new directory was verified on return;
    if the call fails or is interrupted, `target` may hold files that no open accepts.
    A file `SALVAGED` in it says what was lost.

    Raises:
        AlreadyExistsError: `target` exists and is not empty.
        LockedError: A writer is running.
        NotFoundError: No segment is left.
    """

    def note(plan: dict[str, Any]) -> bytes:
        made = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"made": made, "source": str(data.absolute()), "keep": keep}
        text = json.dumps(about | asdict(_plan(plan)), indent=1, ensure_ascii=False)
        return text.encode() + b"\n"

    done = _native.repair(
        _existing(data),
        target,
        keep,
        secrets.randbits(64),
        f"process {os.getpid()}, repairing",
        note,
        progress,
    )
    return Repaired(target, _plan(done["plan"]), _report(done["report"]))


def _existing(data: Path) -> Path:
    if not data.is_dir():
        raise NotFoundError(f"the directory {data} does not exist")
    return data


def _log(row: dict[str, Any]) -> LogState:
    options = _options(bytes(row.pop("options")))
    producers = [Producer(**producer) for producer in row.pop("producers")]
    cursors = [Cursor(**cursor) for cursor in row.pop("cursors")]
    return LogState(**row, options=options, producers=producers, cursors=cursors)


def _table(row: dict[str, Any]) -> TableState:
    indexes = [
        IndexState(
            index["name"],
            f"{index['tree']:032x}",
            bytes(index["spec"]).decode(errors="replace"),
            "active" if index["active"] else "building",
            index["position"],
        )
        for index in row["indexes"]
    ]
    return TableState(
        name=row["name"],
        id=f"{row['id']:032x}",
        log=row["log"],
        created=row["created"],
        start=row["start"],
        pin=row["pin"],
        primary=f"{row['primary']:032x}",
        options=_options(bytes(row["options"])),
        indexes=indexes,
    )


def _options(data: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(data or b"{}")
    except ValueError:
        decoded = {"undecoded": data.hex()}
    return dict(decoded)


def _note(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _report(row: dict[str, Any]) -> Report:
    found = [Finding(**finding) for finding in row.pop("findings")]
    notes = [finding for finding in found if finding.severity == "note"]
    return Report(**row, findings=[f for f in found if f not in notes], notes=notes)


def _plan(row: dict[str, Any]) -> Plan:
    return Plan(
        logs=[RecoveredLog(**log) for log in row["logs"]],
        losses=[LostRange(**loss) for loss in row["losses"]],
        guesses=list(row["guesses"]),
        damage=[Damage(**place) for place in row["damage"]],
    )
