"""The log that a sink writes to: of a directory, or of a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import braidlog
from braidlog.client.blocking import Client, Ingest
from braidlog.errors import LockedError
from braidlog.spark.sink.ledger.ledger import Ledger, open_ledger
from braidlog.spark.sink.options import SinkOptions
from braidlog.store.ingest import StoreIngest
from braidlog.store.store import Store

# A record must fit a frame of the protocol, whatever its size is once encoded.
_CLUSTER_RECORD_BYTES: Final = 15 << 20
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Target:
    """A log that batches are stored in."""

    ingest: Ingest | StoreIngest
    ledger: Ledger
    record_bytes_max: int
    """Bytes that a record may take, encoded."""


def target_of(node: Store | Client, name: str) -> Target:
    """Return a log of a cluster, or of a directory whose writer this process is."""
    ledger = open_ledger(node, name)
    if isinstance(node, Client):
        return Target(node.ingest(name), ledger, _CLUSTER_RECORD_BYTES)
    limit = node.stats().segment_bytes // 4
    return Target(StoreIngest(node, name), ledger, limit)


@contextmanager
def opened(options: SinkOptions) -> Iterator[Target]:
    """Open the log to write to it.

    Raises:
        LockedError: another process is the writer of the directory.
        NotFoundError: there is no such directory or log.
    """
    origin = options.origin
    with origin.client() if origin.cluster else _writer(options) as node:
        yield target_of(node, origin.log)


def streams_of(options: SinkOptions) -> tuple[str, tuple[int, ...]]:
    """Return the identity of the log, and the streams that keys are spread over.

    Raises:
        NotFoundError: there is no such directory or log.
    """
    origin = options.origin
    if origin.cluster:
        with origin.client() as client:
            ingest = client.ingest(origin.log)
            return ingest.log, ingest.streams
    with braidlog.open(origin.path, read_only=True) as node:
        log = node.log(origin.log)
        return log.id, (log.describe().stream,)


def _writer(options: SinkOptions) -> Store:
    """Become the writer of the directory, waiting for another sink to be done."""
    deadline = time.monotonic() + options.lock_wait_s
    while True:
        try:
            return braidlog.open(options.origin.path, create=False)
        except LockedError as error:
            if time.monotonic() >= deadline:
                raise LockedError(
                    f"{error.message}: another process held it for "
                    f"{options.lock_wait_s:g} s. The sink must be the only writer "
                    "while it stores a batch: close the directory in the other "
                    "process, or write into a log of a cluster with the option "
                    "'cluster'"
                ) from error
            time.sleep(_PAUSE_S)
