"""Run the importing process, kill it on the way, and go on from what the log has.

Theory of operation: kill i of k comes once the process has reported a share i/(k+1)
of the events as durable, while appends are in flight. The process holds halfway to the
next mark, so that a small input is not finished before the signal arrives. After each
kill the log is opened for writing, which recovers it. Its end may be beyond the
reported one but never before it: then an acknowledged record would be lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import braidlog
from examples.demo.events import Event, decode, key_of, producer_of, shown
from examples.demo.importer import importing_process
from examples.demo.options import LOG, DemoError
from examples.demo.pasts import keep_table

__all__ = [
    "Failover",
    "ImportOutcome",
    "Kill",
    "Mark",
    "Progress",
    "marks",
    "reports",
    "run_import",
]

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of events that are durable."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Kill when so many events are durable; hold the process before ``hold_at``."""

    stored: int
    hold_at: int


@dataclass(frozen=True, slots=True)
class Kill:
    """What one SIGKILL left behind."""

    pid: int
    acknowledged: int
    found: int
    last: str
    recovery_seconds: float


@dataclass(frozen=True, slots=True)
class Failover:
    """What one SIGKILL of a primary cost."""

    node: int
    pid: int
    led: bool
    """Whether it also was the leader of the metadata repository."""
    acknowledged: int
    gap_ms: float
    """The longest time around it in which no append was acknowledged."""
    primary: int
    """Who was the primary afterwards."""


@dataclass(slots=True)
class ImportOutcome:
    """How the import went."""

    kills: list[Kill] = field(default_factory=list)
    seconds: float = 0.0
    resent: int = 0


@dataclass(slots=True)
class _Run:
    """What one process reported."""

    pid: int
    acknowledged: int = 0
    seconds: float = 0.0
    resent: int = 0


def marks(events: int, kills: int) -> list[Mark]:
    """Return where to kill, spread evenly; all of them lie before the last event."""
    edges = [events * i // (kills + 1) for i in range(1, kills + 1)] + [events]
    return [
        Mark(mark, mark + (following - mark) // 2)
        for mark, following in pairwise(edges)
    ]


def run_import(
    data: Path, path: Path, events: int, kills: int, progress: Progress
) -> ImportOutcome:
    """Import ``path`` into the log in ``data`` in spite of ``kills`` SIGKILLs.

    Raises:
        DemoError: An acknowledged event is gone, or the process failed by itself.
    """
    outcome = ImportOutcome()
    for mark in [*marks(events, kills), None]:
        run = _run(data, path, mark, progress)
        outcome.seconds += run.seconds
        outcome.resent += run.resent
        if mark is not None:
            outcome.kills.append(_reopen(data, run))
    return outcome


def _run(data: Path, path: Path, mark: Mark | None, progress: Progress) -> _Run:
    """Start the process and follow it to its end, or to the mark and kill it."""
    command = importing_process()
    command += ["--data", str(data), "--input", str(path)]
    if mark is not None:
        command += ["--hold-at", str(mark.hold_at)]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            run = _follow(process, mark, progress)
        finally:
            process.kill()
        code = process.wait()
        if code != (0 if mark is None else -signal.SIGKILL):
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
            reason = said[-1] if said else "it said nothing"
            raise DemoError(f"the importing process ended with code {code}: {reason}")
    return run


def _follow(
    process: subprocess.Popen[bytes], mark: Mark | None, progress: Progress
) -> _Run:
    run, killed = _Run(process.pid), False
    # After the signal the pipe still holds what was reported before: it counts too.
    for report in reports(process):
        run.acknowledged = report["stored"]
        run.seconds = report.get("seconds", run.seconds)
        run.resent = report.get("resent", run.resent)
        progress(run.acknowledged)
        if mark is not None and not killed and run.acknowledged >= mark.stored:
            os.kill(process.pid, signal.SIGKILL)
            killed = True
    process.wait()
    return run


def reports(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield what an importing process says, until it ends."""
    assert process.stdout is not None  # noqa: S101, RUF100
    for line in process.stdout:
        if line.endswith(b"\n"):  # the signal may cut the last one
            yield json.loads(line)


def _reopen(data: Path, run: _Run) -> Kill:
    """Let the log recover and ask it where it stopped."""
    began = time.perf_counter()
    with braidlog.open(data) as node:
        log = node.create_log(LOG, exist_ok=True)  # the kill may have come before it
        found = log.end - 1
        seconds = time.perf_counter() - began
        last = decode(log[found].value) if found else None
        if last is not None:
            _check_producer(log, last)
            _check_table(keep_table(node), last, found)
    if found < run.acknowledged:
        raise DemoError(
            f"LOST: {run.acknowledged} events were acknowledged before the kill, "
            f"the log has {found}. Its files are in {data}"
        )
    return Kill(run.pid, run.acknowledged, found, _describe(last), seconds)


def _check_producer(log: Any, last: Event) -> None:
    """Compare what the log says of the producer with the last record it wrote."""
    expected = log.next_sequence(producer_of(last.source))
    if expected != last.seq + 2:  # sequences count from 1, and this is the next one
        raise DemoError(
            f"the log expects sequence {expected} of {shown(last.source)}, "
            f"but its last record is number {last.seq + 1}"
        )


def _check_table(table: Any, last: Event, position: int) -> None:
    """Ask the table for the last record of the log; also have it write its files."""
    record = table.get(key_of(last))
    expected = None if last.entry is None else position
    if (record and record.position) != expected:
        where = record and record.position
        raise DemoError(
            f"the table has {shown(last.path)} of position {where}, the log of "
            f"{expected}"
        )
    table.flush()


def _describe(last: Event | None) -> str:
    if last is None:
        return "nothing"
    return f"{last.source} #{last.seq} {shown(last.path)}"
