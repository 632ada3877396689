"""``braidlog bench``: what this machine and disk give, in a few seconds."""

from __future__ import annotations

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click

import braidlog
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import LocalCommand, command
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import message, rows

_VALUE = b"x" * 128
_LARGE = [b"x" * 1024] * 1024

# Records that a pipelined caller has on their way.
_IN_FLIGHT = 1024

# However long it runs: older records go, and their segments are used again.
_KEPT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the result; the times are those of one call, or of one record."""

    workload: str
    records_per_second: int
    p50_us: float | None
    p99_us: float | None


@command(kind=LocalCommand)
@click.option(
    "--seconds",
    type=parameters.seconds,
    default=1.0,
    show_default=True,
    help="How long to run each workload.",
)
@click.option(
    "--directory",
    type=parameters.FOLDER,
    default=Path(),
    help=(
        "Directory of the temporary log, and so the disk to measure [default: here]."
    ),
)
def bench(session: Session, *, seconds: float, directory: Path) -> None:
    """Measure durable appends and reads.

    Uses a temporary log of at most a few GiB. Times are per append, per record from
    submit to durable, per batch, and per lookup.

    `make bench` in the repository compares with the device and with other systems.
    """
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-bench-", dir=directory) as path,
        braidlog.open(path) as store,
    ):
        message(f"temporary log in {path}")
        log = store.create_log("bench", retention_bytes=_KEPT_BYTES)
        measured = list(_measure(store, log, seconds))
        rows(session, measured, empty="", shown=_shown)


def _measure(
    store: braidlog.Store, log: braidlog.Log, seconds: float
) -> Iterator[Measured]:
    yield _row("append 128 B, durable", *_timed(lambda: log.append(_VALUE), seconds))
    yield _row("append 128 B, pipelined", *_pipelined(log, seconds))
    yield _row(
        "append 1 KiB in batches of 1 MiB",
        *_timed(lambda: log.append_many(_LARGE), seconds),
        records=len(_LARGE),
    )
    # Else the retention may overtake a reader.
    log.set_options()
    yield _read(log, seconds)
    # A stride that is prime to most lengths visits the log like a random choice.
    first, records, step = log.first, log.end - log.first, 0

    def lookup() -> None:
        nonlocal step
        step += 7_368_787
        log.get(first + step % records)

    yield _row("look up by position", *_timed(lookup, seconds))


def _timed(call: Callable[[], object], seconds: float) -> tuple[list[float], float]:
    """Repeat a call; return how long each took, and all of them."""
    durations = []
    start = time.perf_counter()
    begin = end = start
    while end - start < seconds:
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        durations.append(end - begin)
    return durations, end - start


def _pipelined(log: braidlog.Log, seconds: float) -> tuple[list[float], float]:
    durations = []
    pending: deque[tuple[float, Any]] = deque()

    def settle() -> None:
        begin, oldest = pending.popleft()
        oldest.result()
        durations.append(time.perf_counter() - begin)

    start = time.perf_counter()
    while (begin := time.perf_counter()) - start < seconds:
        pending.append((begin, log.submit(_VALUE)))
        if len(pending) >= _IN_FLIGHT:
            settle()
    while pending:
        settle()
    return durations, time.perf_counter() - start


def _read(log: braidlog.Log, seconds: float) -> Measured:
    records = log.read()
    count, start = 0, time.perf_counter()
    while (end := time.perf_counter()) - start < seconds:
        read = sum(1 for _ in islice(records, 10_000))
        count += read
        if not read:
            break
    return Measured("read records in order", round(count / (end - start)), None, None)


def _row(
    workload: str, durations: list[float], elapsed: float, *, records: int = 1
) -> Measured:
    ordered = sorted(durations)
    return Measured(
        workload,
        round(len(ordered) * records / elapsed),
        _at(ordered, 0.5),
        _at(ordered, 0.99),
    )


def _at(ordered: list[float], quantile: float) -> float:
    return round(ordered[int(quantile * (len(ordered) - 1))] * 1e6, 1)


def _shown(measured: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": measured["workload"],
        "records/s": measured["records_per_second"],
        "p50 us": measured["p50_us"],
        "p99 us": measured["p99_us"],
    }
