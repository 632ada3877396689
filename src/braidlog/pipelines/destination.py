"""Where `repartition` puts records: a log, of which each part has a stream.

*Invariants.* Records of a part are appended in order, in columns: no record is looked
at in Python. What is appended is durable when a call returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import braidlog
from braidlog.errors import FencedError, InvalidArgumentError
from braidlog.paths import local_path
from braidlog.sources.origin import Origin
from braidlog.store.ingest import StoreIngest

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog.client.blocking import Ingest
    from braidlog.types import Producer


class Parts:
    """A log to append parts to: each has the stream that keys of its hash belong to."""

    def __init__(self, ingest: Ingest | StoreIngest) -> None:
        """Bind to the log; of a directory, its one stream takes all."""
        self._ingest = ingest

    @property
    def id(self) -> str:
        """Identity of the log."""
        return self._ingest.log

    @property
    def end(self) -> int:
        """Return the next position."""
        return self._ingest.refresh().stop

    def next_sequence(self, part: int, producer: Producer) -> int:
        """Return what the producer of a part must send next, 1 if it is unknown.

        Raises:
            FencedError: a later epoch of it has been there.
        """
        stream = self._ingest.streams[part]
        found = self._ingest.next_sequence({stream: producer})[stream]
        if found == 0:
            msg = f"stream {stream} was removed from the log while it was loaded"
            raise InvalidArgumentError(msg)
        if found is None:
            msg = f"stream {stream} has seen a later epoch of producer {producer.id}"
            raise FencedError(msg)
        return found

    def append(
        self,
        part: int,
        batches: Iterable[pa.RecordBatch],
        producer: Producer,
        sequence: int,
    ) -> None:
        """Append a part, or what is left of it.

        Raises:
            LogFullError: the log is full; what was before that batch is stored.
        """
        stream = self._ingest.streams[part]
        done = self._ingest.append_all({stream: (batches, producer, sequence)})
        if (error := done[stream]) is not None:
            raise error


@dataclass(frozen=True, slots=True)
class Destination:
    """A log to append to: of a cluster, or of a data directory, which has one stream.

    A log that is not there is created.
    """

    log: str
    streams: int = 1
    path: str = ""
    cluster: str = ""
    ca: str = ""
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse what names no place, or two.

        Raises:
            InvalidArgumentError: it does, a directory is to have several streams, or
                its path is a URI.
        """
        if bool(self.path) == bool(self.cluster) or not self.log:
            msg = "name a destination by `log` and exactly one of `path` and `cluster`"
            raise InvalidArgumentError(msg)
        if self.streams < 1 or (self.path and self.streams != 1):
            raise InvalidArgumentError(
                "streams must be at least 1, and 1 for a data directory, not "
                f"{self.streams}"
            )
        for name, what in (("path", "the data directory"), ("ca", "`ca`")):
            if given := getattr(self, name):
                object.__setattr__(self, name, str(local_path(given, what)))

    def parameters(self) -> dict[str, Any]:
        """Return what identifies it."""
        found: dict[str, Any] = {"log": self.log, "streams": self.streams}
        if self.path:
            return {**found, "path": os.path.abspath(self.path)}  # noqa: PTH100
        return {**found, "cluster": self.cluster}

    @contextmanager
    def open(self, *, create: bool = False) -> Iterator[Parts]:
        """Open the log for appending.

        Raises:
            LockedError: another process writes to the directory.
            InvalidArgumentError: the log has another number of streams.
        """
        if self.path:
            # Who is not to create it is told where it does not see it.
            with braidlog.open(self.path, create=None if create else False) as node:
                if create:
                    node.create_log(self.log, exist_ok=True)
                yield Parts(StoreIngest(node, self.log))
            return
        origin = Origin(self.log, cluster=self.cluster, ca=self.ca, token=self.token)
        with origin.client() as client:
            if create:
                client.create_log(self.log, exist_ok=True, streams=self.streams)
            ingest = client.ingest(self.log)
            there = len(ingest.streams)
            if there != self.streams:
                msg = f"the log {self.log!r} has {there} streams, not {self.streams}"
                raise InvalidArgumentError(msg)
            yield Parts(ingest)
