"""The log that a sink writes to: of a directory, or of a cluster."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

import braidlog
from braidlog import _native
from braidlog.errors import (
    FencedError,
    InvalidArgumentError,
    LockedError,
    LogError,
    TrimmedError,
)
from braidlog.spark.sink.ledger import Ledger, open_ledger
from braidlog.spark.sink.options import SinkOptions
from braidlog.spark.sink.rows import SCHEMA
from braidlog.store.internals import producer_state, raw_streams
from braidlog.types import Producer

__all__ = ["Appends", "Target", "opened", "streams_of"]

Appends: TypeAlias = Mapping[int, tuple[Iterable[pa.RecordBatch], Producer, int]]
"""For each stream records, their producer, and the sequence of the first."""

# A record must fit a frame of the protocol, whatever its size is once encoded.
_CLUSTER_RECORD_BYTES: Final = 15 << 20
_SEARCH_BYTES: Final = 4 << 20
_PAUSE_S: Final = 0.1


class Target(Protocol):
    """A log that batches are stored in."""

    identity: str
    """Of the log; another one of the same name has another."""
    ledger: Ledger
    record_bytes_max: int
    """Bytes that a record may take, encoded."""

    def end(self) -> int:
        """Return the next position."""

    def next_sequence(
        self, producers: Mapping[int, Producer]
    ) -> Mapping[int, int | None]:
        """Return what streams expect next; see `ledger.effects.AskNext`."""

    def stored(self, stream: int, producer: Producer, since: int) -> int:
        """Return what follows a producer's records; see `Find` there."""

    def append_all(self, appends: Appends) -> Mapping[int, LogError | None]:
        """Append to streams; see `Store` there."""


class EmbeddedTarget:
    """A log of a data directory, of which this process is the writer."""

    def __init__(self, node: braidlog.Store, name: str) -> None:
        """Bind to a log."""
        self._log = node.log(name)
        self._stream = self._log.describe().stream
        self.identity = self._log.id
        self.ledger = open_ledger(node, name)
        self.record_bytes_max = node.stats().segment_bytes // 4
        self._replicas = raw_streams(node)

    def end(self) -> int:
        """Return the next position."""
        return self._log.end

    def next_sequence(
        self, producers: Mapping[int, Producer]
    ) -> Mapping[int, int | None]:
        """Return what the log expects next; None if a later epoch has been there."""
        return {stream: self._next(who) for stream, who in producers.items()}

    def _next(self, producer: Producer) -> int | None:
        _, epoch = producer_state(self._log, producer.id)
        if epoch is not None and epoch > producer.epoch:
            return None
        return self._log.next_sequence(producer)

    def stored(self, stream: int, producer: Producer, since: int) -> int:
        """Return the sequence behind what a producer stored from a position on."""
        if since < self._log.first:
            msg = (
                f"position {since} was trimmed, so it cannot be checked what was "
                "stored there"
            )
            raise TrimmedError(msg, first=self._log.first)
        following, position = 1, since
        while position < self._log.end:
            found = self._replicas.read(
                self._log._stream, position, self._log.end, _SEARCH_BYTES
            )
            if not found:
                break
            for first, _, data in found:
                count, _, who, epoch, sequence, *_ = _native.batch_header(data)
                if (who, epoch) == (producer.id, producer.epoch):
                    following = max(following, sequence + count)
                position = max(position, first + count)
        return following

    def append_all(self, appends: Appends) -> Mapping[int, LogError | None]:
        """Append to the log; durable on return."""
        outcomes: dict[int, LogError | None] = {}
        for stream, (rows, producer, sequence) in appends.items():
            failures: list[LogError] = []
            reader = pa.RecordBatchReader.from_batches(SCHEMA, _kept(rows, failures))
            try:
                self._log.append_arrow(reader, producer=producer, sequence=sequence)
                outcomes[stream] = None
            except (InvalidArgumentError, FencedError) as error:
                # Through Arrow's stream our errors arrive as its errors.
                outcomes[stream] = failures[0] if failures else error
        return outcomes


def _kept(
    rows: Iterable[pa.RecordBatch], failures: list[LogError]
) -> Iterator[pa.RecordBatch]:
    try:
        yield from rows
    except LogError as error:
        failures.append(error)
        raise


class ClusterTarget:
    """A log of a cluster."""

    def __init__(self, client: Any, name: str) -> None:
        """Bind to a log."""
        self._ingest = client.ingest(name)
        self.identity = self._ingest.log
        self.ledger = open_ledger(client, name)
        self.record_bytes_max = _CLUSTER_RECORD_BYTES

    def end(self) -> int:
        """Return the next position."""
        there: range = self._ingest.refresh()
        return there.stop

    def next_sequence(
        self, producers: Mapping[int, Producer]
    ) -> Mapping[int, int | None]:
        """Return what streams expect next; None if a later epoch has been there."""
        found: Mapping[int, int | None] = self._ingest.next_sequence(producers)
        return found

    def stored(self, stream: int, producer: Producer, since: int) -> int:
        """Return the sequence behind what a producer stored from a position on."""
        following: int = self._ingest.stored(stream, producer, since)
        return following

    def append_all(self, appends: Appends) -> Mapping[int, LogError | None]:
        """Append to all streams at the same time; durable on return."""
        outcomes: Mapping[int, LogError | None] = self._ingest.append_all(appends)
        return outcomes


@contextmanager
def opened(options: SinkOptions) -> Iterator[Target]:
    """Open the log to write to it.

    Raises:
        LockedError: another process is the writer of the directory.
        NotFoundError: there is no such directory or log.
    """
    if options.cluster:
        with _connected(options) as client:
            yield ClusterTarget(client, options.log)
        return
    with _writer(options) as node:
        yield EmbeddedTarget(node, options.log)


def streams_of(options: SinkOptions) -> tuple[str, tuple[int, ...]]:
    """Return the identity of the log, and the streams that keys are spread over.

    Raises:
        NotFoundError: there is no such directory or log.
    """
    if options.cluster:
        with _connected(options) as client:
            ingest = client.ingest(options.log)
            return ingest.log, ingest.streams
    with braidlog.open(options.path, read_only=True) as node:
        log = node.log(options.log)
        return log.id, (log.describe().stream,)


@contextmanager
def _connected(options: SinkOptions) -> Iterator[Any]:
    # Made anew in each process: a context cannot be sent to another one.
    context = ssl.create_default_context(cafile=options.ca) if options.ca else None
    with braidlog.connect(options.cluster, token=options.token, ssl=context) as client:
        yield client


def _writer(options: SinkOptions) -> braidlog.Store:
    """Become the writer of the directory, waiting for another sink to be done."""
    deadline = time.monotonic() + options.lock_wait_s
    while True:
        try:
            return braidlog.open(options.path, create=False)
        except LockedError as error:
            if time.monotonic() >= deadline:
                msg = (
                    f"{error.message}: another process held it for "
                    f"{options.lock_wait_s:g} s. The sink must be the only writer "
                    "while it stores a batch: close the directory in the other "
                    "process, or write into a log of a cluster with the option "
                    "'cluster'"
                )
                raise LockedError(msg) from error
            time.sleep(_PAUSE_S)
