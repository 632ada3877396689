"""The process that imports: `importing_process` says how it is started.

Theory of operation: positions are dense and the log is never trimmed here, so line n
of the input belongs at position n. On start the process asks the log for its end,
skips the lines that the log has, and continues. Consecutive lines of one source are one
batch, under the source's producer with sequence ``seq + 1``. Many batches are in
flight, and each must get exactly the positions of its lines. The process sends the last
lines that the log has again on purpose: the log must answer with their first positions.

Given a cluster instead of a directory, it does the same over the network: the log has
one stream, in which the order of the lines is the order of the positions, and the
client keeps it while the primary changes.

It prints JSON lines: ``ready``, then ``stored`` as appends become durable, with the
longest pause since the line before, then ``done``. It may be killed at any moment. It
ends by itself when its parent is gone.
"""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import braidlog
from examples.demo.events import Event, decode, key_of, producer_of, runs
from examples.demo.files import read_lines
from examples.demo.options import LOG
from examples.demo.pasts import keep_table

__all__ = ["Import", "importing_process", "main"]

_BATCH_RECORDS: Final = 512
_IN_FLIGHT: Final = 64
_RESENT_LINES: Final = 100
_RESENT_BATCHES: Final = 8
_REPORT_SECONDS: Final = 0.05
_TIMEOUT_SECONDS: Final = 120.0


@dataclass(slots=True)
class _Batch:
    """Lines of one source, and where they must go."""

    first: int
    events: list[Event]
    lines: list[bytes]


class Import:
    """One run of the importing process over an open log."""

    def __init__(self, log: Any, say: Callable[..., None]) -> None:
        """Ask the log where it stopped."""
        self._log = log
        self._say = say
        self._waiting: deque[tuple[Any, range]] = deque()
        self._began = time.perf_counter()
        self._reported = 0.0
        self._settled = time.monotonic()
        self._gap = (self._settled, self._settled)
        self.stored: int = log.end - 1
        self.resent = 0

    def run(self, path: Path, hold_at: int | None) -> None:
        """Send what the log does not have yet, up to line ``hold_at`` if given."""
        stored = self.stored
        again = max(0, stored - _RESENT_LINES)
        lines = read_lines(path, skip=again)
        # A producer's window remembers its last few runs, so no more of them than that.
        known = deque(_batches(again, islice(lines, stored - again)), _RESENT_BATCHES)
        self.resent = sum(len(batch.lines) for batch in known)
        self._send(known)
        left = None if hold_at is None else max(0, hold_at - stored)
        self._send(_batches(stored, islice(lines, left)))

    def go_on(self) -> None:
        """Count no time in which this waited to be told to go on."""
        self._settled = time.monotonic()

    def _send(self, batches: Iterable[_Batch]) -> None:
        for batch in batches:
            while len(self._waiting) >= _IN_FLIGHT:
                self._settle()
            self._submit(batch)
        while self._waiting:
            self._settle()
        self._report()

    def _submit(self, batch: _Batch) -> None:
        first = batch.events[0]
        pending = self._log.submit_many(
            batch.lines,
            keys=[key_of(event) for event in batch.events],
            timestamps=[event.ts * 1_000_000 for event in batch.events],
            producer=producer_of(first.source),
            sequence=first.seq + 1,
        )
        end = batch.first + len(batch.lines)
        self._waiting.append((pending, range(batch.first, end)))

    def _settle(self) -> None:
        pending, expected = self._waiting.popleft()
        found = pending.result(timeout=_TIMEOUT_SECONDS)
        if (found.start, found.stop) != (expected.start, expected.stop):
            raise AssertionError(f"lines {expected} were stored at {found}")
        self.stored = max(self.stored, expected.stop - 1)
        # Comparable with the same clock of another process.
        now = time.monotonic()
        self._gap = max(self._gap, (self._settled, now), key=_length)
        self._settled = now
        if time.perf_counter() - self._reported >= _REPORT_SECONDS:
            self._report()

    def _report(self) -> None:
        self._reported = time.perf_counter()
        self._say(
            "stored",
            stored=self.stored,
            resent=self.resent,
            seconds=self._reported - self._began,
            gap=self._gap,
        )
        self._gap = (self._settled, self._settled)


def main(arguments: Sequence[str] | None = None) -> None:
    """Import, or hold before the end and wait for the signal that kills."""
    parser = ArgumentParser()
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--data")
    place.add_argument("--cluster")
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--hold-at", type=int, action="append", default=[])
    given = parser.parse_args(arguments)
    with _opened(given.data, given.cluster) as node:
        job = Import(node.create_log(LOG, exist_ok=True), _say)
        if given.data is not None:
            keep_table(node)
        _say("ready", stored=job.stored)
        for mark in given.hold_at:
            job.run(given.input, mark)
            if not sys.stdin.readline():  # ends with the parent
                break
            job.go_on()
        else:
            job.run(given.input, None)
        _say("done", stored=job.stored)


def _opened(data: str | None, seeds: str | None) -> AbstractContextManager[Any]:
    if data is not None:
        return braidlog.open(data)
    return braidlog.connect(seeds or "")


def _length(gap: tuple[float, float]) -> float:
    return gap[1] - gap[0]


def _batches(skipped: int, lines: Iterator[bytes]) -> Iterator[_Batch]:
    """Group lines into batches; the first line stands ``skipped`` lines behind."""
    kept: deque[bytes] = deque()

    def decoded() -> Iterator[Event]:
        for line in lines:
            kept.append(line)
            yield decode(line)

    first = skipped + 1
    for events in runs(decoded(), _BATCH_RECORDS):
        yield _Batch(first, events, [kept.popleft() for _ in events])
        first += len(events)


def _say(event: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


def importing_process() -> list[str]:
    """Return the command that starts `main`, wherever the checkout is."""
    root = str(Path(__file__).parents[2])
    start = f"import sys; sys.path.insert(0, {root!r}); from {__name__} import main"
    return [sys.executable, "-c", f"{start}; main()"]
