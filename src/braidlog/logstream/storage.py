"""What a replica needs from the disk.

The storage is synchronous and never waits: a call writes to the buffer of the node's
WAL. Calls become durable in their order, so a crash keeps a prefix of them. What is
durable comes back to the replica as a number, see `StreamStorage.ticket`.

A refused call changes nothing. `StoreFailedError` from any of them means that the store
takes nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from braidlog.wire.messages import Run

__all__ = [
    "Batch",
    "CommitContext",
    "Placed",
    "StoredBatch",
    "StoredStream",
    "StreamStorage",
]

Batch: TypeAlias = bytes | memoryview
"""A record batch as the core encodes it; it carries no position."""


class CommitContext(Struct, frozen=True):
    """The last commit that a replica applied, and with it all before."""

    version: int = 0
    """Everything that cuts up to this one gave to the stream is committed here."""
    glsn_begin: int = 0
    llsn_begin: int = 0
    length: int = 0
    """0: the log went on without this stream."""
    high_watermark: int = 0
    """Every record of the stream with at most this GLSN is committed here."""

    @property
    def llsn_end(self) -> int:
        """Return the first LLSN that is not committed."""
        return self.llsn_begin + self.length

    @property
    def glsn_end(self) -> int:
        """Return a GLSN behind that of every committed record of the stream."""
        return self.glsn_begin + self.length


class StoredStream(Struct, frozen=True):
    """Where the stream stands, all calls so far included."""

    low: int
    """First LLSN that is kept."""
    committed: int
    """First LLSN that is not committed."""
    next: int
    """LLSN of the next record."""
    epoch: int
    """The last epoch that was entered; 0 for none."""
    epochs: tuple[tuple[int, int], ...]
    """(epoch, first LLSN), rising; those without kept records may be missing."""
    context: CommitContext


class Placed(Struct, frozen=True):
    """Where a batch is."""

    llsn: int
    count: int
    new: bool
    """False: it is a repeat, and `llsn` is its place from the first time."""


class StoredBatch(Struct, frozen=True):
    """An encoded batch and its place."""

    llsn: int
    count: int
    data: Batch

    @property
    def end(self) -> int:
        """Return the LLSN behind the batch."""
        return self.llsn + self.count


class StreamStorage(Protocol):
    """One stream of a node's WAL, with explicit commits.

    One that has `replicas` and `stored_as`, as a stream of a `NodeStore` does, is asked
    by the core itself where the stream stands.
    """

    def state(self) -> StoredStream:
        """Return where the stream stands."""
        ...

    def append(
        self, epoch: int, batches: Sequence[Batch], *, repeat: bool = False
    ) -> list[Placed]:
        """Give each batch the next LLSNs and write it; repeats are not written.

        All or nothing: if it raises, no batch of the call was written.

        Raises:
            LogFullError: there is no room.
            UnknownProducerError: with `repeat` a batch may have been stored before, and
                its producer may have been forgotten since.
            SequenceGapError, SequenceExpiredError, FencedError: by the producer window.
            InvalidArgumentError, CorruptionError: not a batch.
        """
        ...

    def place(self, epoch: int, llsn: int, batches: Sequence[Batch]) -> None:
        """Verify batches and write them from `llsn` on, which must be the next LLSN.

        Raises:
            LogFullError: there is no room.
            InvalidArgumentError, CorruptionError: not a batch, or not the next LLSN.
        """
        ...

    def commit(self, epoch: int, context: CommitContext) -> None:
        """Write a commit context that begins where the last one ended.

        The version rises. With a length it may also stay the same: a replica that
        copies a run piece by piece claims its version with the last piece.
        """
        ...

    def rollback(self, epoch: int, llsn: int) -> None:
        """Drop all from `llsn` on, which is never below what is committed.

        Producer windows forget what is dropped.
        """
        ...

    def enter(self, epoch: int) -> None:
        """Enter a greater epoch; it begins at the next LLSN."""
        ...

    def trim(self, llsn: int) -> None:
        """Drop all below `llsn`, which is never above what is committed."""
        ...

    def restart(self, llsn: int, producers: Batch = b"") -> None:
        """Forget everything but the epoch; the stream begins anew, empty, at `llsn`.

        `low`, `committed` and `next` become `llsn`, the context
        `CommitContext(llsn_begin=llsn)`, and the producer windows `producers`: without
        them a repeat of what was trimmed would be stored again.

        Raises:
            InvalidArgumentError, CorruptionError: `producers` is not what it has to be.
        """
        ...

    def producers(self, llsn: int) -> bytes:
        """Return the producer windows of what is stored below `llsn`, for `restart`."""
        ...

    def read(self, begin: int, end: int, bytes_max: int) -> list[StoredBatch]:
        """Return the batches with LLSNs in `begin..end`, the uncommitted tail too.

        Whole batches: the first may begin before `begin`. At least one if there is any,
        then as many as fit into `bytes_max`.
        """
        ...

    def runs(self, begin: int, end: int) -> list[Run]:
        """Return the commit runs of the committed LLSNs in `begin..end`, cut to it."""
        ...

    def llsn_of(self, glsn: int) -> int:
        """Return the first kept LLSN whose GLSN is at least `glsn`.

        If there is none, the first LLSN that is not committed.
        """
        ...

    def ticket(self) -> int:
        """Return a number: all calls so far are durable once that much is synced."""
        ...
