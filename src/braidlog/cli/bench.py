"""``braidlog bench``: what this machine and disk give, in a few seconds."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

import braidlog
from braidlog.cli.output import message, rows
from braidlog.cli.session import Session, command

__all__ = ["bench"]

_VALUE = b"x" * 128
_LARGE = b"x" * 1024


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the result."""

    workload: str
    metric: str
    value: float


@command()
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=1.0,
    show_default=True,
    help="How long to run each workload.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    help="Where to put the temporary log, so which disk [default: here].",
)
@click.pass_obj
def bench(session: Session, *, seconds: float, directory: Path) -> None:
    """Measure durable appends and reads.

    Uses a temporary log, removed at the end.

    `make bench` in the repository compares with the device and with other systems.
    """
    with (
        tempfile.TemporaryDirectory(prefix="braidlog-bench-", dir=directory) as path,
        braidlog.open(path) as node,
    ):
        message(f"temporary log in {path}")
        rows(session, list(_measure(node.create_log("bench"), seconds)), empty="")


def _measure(log: braidlog.Log, seconds: float) -> Iterator[Measured]:
    latencies = sorted(_timed(lambda: log.append(_VALUE), seconds))
    yield Measured("append 128 B, durable", "p50 us", _at(latencies, 0.5))
    yield Measured("append 128 B, durable", "p99 us", _at(latencies, 0.99))

    values = [_LARGE] * 1024
    batches = _timed(lambda: log.append_many(values), seconds)
    rate = len(values) / statistics.fmean(batches)
    yield Measured("append 1 KiB in batches of 1 MiB", "records/s", round(rate))

    begin, count = time.perf_counter(), 0
    for _ in log.read(log.first):
        count += 1
        if count % 10_000 == 0 and time.perf_counter() - begin > seconds:
            break
    rate = count / (time.perf_counter() - begin)
    yield Measured("read records in order", "records/s", round(rate))

    # A stride that is prime to most lengths visits the log like a random choice.
    first, records, step = log.first, log.end - log.first, 0

    def lookup() -> None:
        nonlocal step
        step += 7_368_787
        log.get(first + step % records)

    yield Measured(
        "look up by position", "p50 us", _at(sorted(_timed(lookup, seconds)))
    )


def _timed(call: Callable[[], object], seconds: float) -> list[float]:
    durations = []
    end = time.perf_counter() + seconds
    while (begin := time.perf_counter()) < end:
        call()
        durations.append(time.perf_counter() - begin)
    return durations


def _at(ordered: list[float], quantile: float = 0.5) -> float:
    return round(ordered[int(quantile * (len(ordered) - 1))] * 1e6, 1)
