"""What the entries of a shard add up to: its positions, its writer, its producers.

*Theory of operation.* A leader asks before it logs (`admit`, `grant` and the others
refuse and change nothing), on a state that has the entries that are not committed yet;
every member applies what is committed. Both are this class.

*Invariants.* Positions are dense from 1. Epochs of writers rise and are never used
again. `first <= next`. A refused append has no entry and no position.
"""

from __future__ import annotations

from typing import Final

import msgspec

from braidlog._native import ProducerWindows
from braidlog.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidArgumentError,
)
from braidlog.raft.errors import check
from braidlog.shard import entries
from braidlog.shard.entries import (
    Append,
    Entry,
    Grant,
    Plan,
    Release,
    Reserve,
    Truncate,
)
from braidlog.shard.extent import Extent

__all__ = ["ShardState"]

OWNER_BYTES_MAX: Final = 255
TTL_MS_MAX: Final = 24 * 3600 * 1000
_FORMAT: Final = b"BSH1"


class _Snapshot(msgspec.Struct, array_like=True):
    """A state as it is stored."""

    next: int
    first: int
    epoch: int
    owner: str
    ttl_ms: int
    producers: bytes
    plan: int = 0
    wanted: tuple[int, ...] = ()
    extent: Extent = msgspec.field(default_factory=Extent)
    stamps: int = 1


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Snapshot)


class ShardState:
    """The state of a shard; see the module."""

    __slots__ = (
        "epoch",
        "extent",
        "first",
        "next",
        "owner",
        "plan",
        "stamps",
        "ttl_ms",
        "wanted",
        "windows",
    )

    def __init__(self, snapshot: bytes = b"") -> None:
        """Begin empty, or where a snapshot was taken.

        Raises:
            CorruptionError: it is no snapshot.
        """
        self.next = 1
        """Position of the next record."""
        self.first = 1
        """The first position that is kept."""
        self.epoch = 0
        """Epoch of the latest writer, whether or not it still owns the log."""
        self.owner = ""
        """Name of the writer that owns the log; empty: nobody does."""
        self.ttl_ms = 0
        """How long the owner may be silent before others may take over; 0: for ever."""
        self.windows = ProducerWindows()
        self.plan = 0
        """The last decision of the repository on who should vote; 0: none."""
        self.wanted: tuple[int, ...] = ()
        """Who should vote, as that says."""
        self.extent = Extent()
        self.stamps = 1
        """Timestamps below this one may have been given out."""
        if snapshot:
            self._restore(snapshot)

    def _restore(self, snapshot: bytes) -> None:
        if snapshot[: len(_FORMAT)] != _FORMAT:
            raise CorruptionError("not a snapshot of a shard")
        try:
            found = _decoder.decode(memoryview(snapshot)[len(_FORMAT) :])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            msg = f"the snapshot of a shard cannot be read: {error}"
            raise CorruptionError(msg) from error
        self.next, self.first = found.next, found.first
        self.epoch, self.owner = found.epoch, found.owner
        self.ttl_ms = found.ttl_ms
        self.windows = ProducerWindows(found.producers)
        self.plan, self.wanted = found.plan, found.wanted
        self.extent, self.stamps = found.extent, found.stamps

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        stored = _Snapshot(
            self.next,
            self.first,
            self.epoch,
            self.owner,
            self.ttl_ms,
            bytes(self.windows),
            self.plan,
            self.wanted,
            self.extent,
            self.stamps,
        )
        return _FORMAT + _encoder.encode(stored)

    def copy(self) -> ShardState:
        """Return a state that goes on by itself."""
        copy = ShardState()
        copy.next, copy.first = self.next, self.first
        copy.epoch, copy.owner, copy.ttl_ms = self.epoch, self.owner, self.ttl_ms
        copy.windows = self.windows.copy()
        copy.plan, copy.wanted = self.plan, self.wanted
        copy.extent, copy.stamps = self.extent.copy(), self.stamps
        return copy

    # --- what a leader asks

    def require_writer(self, writer: int) -> None:
        """Refuse a writer that does not own the log, or that names none of an owned.

        Raises:
            FencedError: another writer owns it, or the epoch is over.
        """
        owned = self.epoch if self.owner else 0
        if writer == owned:
            return
        if owned:
            what = f"writer epoch {writer} is over" if writer else "it has an owner"
            msg = f"{what}: the log belongs to {self.owner!r}, epoch {owned}"
        else:
            msg = f"writer epoch {writer} is over, and nobody owns the log now"
        raise FencedError(msg, given=writer, current=self.epoch, owner=self.owner)

    def admit(
        self, batch: bytes, writer: int, expected: int | None, *, repeat: bool
    ) -> tuple[int, int, bool]:
        """Decide on a batch: (position, records, whether it is new).

        A repeat of a producer's batch is told where it was stored, whatever is expected
        now: that was decided when it was stored.

        Raises:
            FencedError: the writer does not own the log, or the producer is over.
            ConflictError: the log does not end at the ``expected`` position.
            SequenceGapError, SequenceExpiredError, UnknownProducerError,
            InvalidArgumentError, CorruptionError: as `Store` says it of a batch.
        """
        self.require_writer(writer)
        count, stored = self.windows.admit(batch, self.next, repeat=repeat)
        if stored is not None:
            return stored, count, False
        if expected is not None and expected != self.next:
            msg = f"the next position is {self.next}, not {expected}: nothing was added"
            raise ConflictError(msg, expected=expected, end=self.next)
        return self.next, count, True

    def grant(
        self, owner: str, ttl_ms: int, expected: int | None, *, lapsed: bool
    ) -> Grant:
        """Decide on a writer that wants to own the log.

        Args:
            owner: its name, for others to see.
            ttl_ms: how long it may be silent before others may take over.
            expected: the epoch that is known to be the latest; None if none is.
            lapsed: whether the present owner may be taken for gone.

        Raises:
            FencedError: somebody owns it, and is not known to the caller.
            InvalidArgumentError: no owner can have this name or time.
        """
        if not owner or len(owner.encode()) > OWNER_BYTES_MAX:
            msg = f"the name of a writer must have 1 to {OWNER_BYTES_MAX} bytes"
            raise InvalidArgumentError(msg)
        if not 0 <= ttl_ms <= TTL_MS_MAX:
            msg = f"ttl must be from 0 to {TTL_MS_MAX} milliseconds, got {ttl_ms}"
            raise InvalidArgumentError(msg)
        held = self.owner and not lapsed
        if (expected is None and held) or expected not in (None, self.epoch):
            by = f"{self.owner!r}, epoch {self.epoch}" if self.owner else "nobody"
            given = 0 if expected is None else expected
            msg = f"the log belongs to {by}; the latest epoch is {self.epoch}"
            raise FencedError(msg, given=given, current=self.epoch, owner=self.owner)
        return Grant(self.epoch + 1, owner, ttl_ms)

    # --- what every member does

    def apply(self, data: bytes) -> Entry:
        """Take a committed entry, or one that was just logged.

        Raises:
            CorruptionError: it is no entry.
            RaftInvariantError: it does not follow from what came before.
        """
        entry = entries.decode(data)
        match entry:
            case Append(count, position, _, batch):
                check(position == self.next, f"{position} behind {self.next - 1}")
                noted = self.windows.note(batch, position)
                check(noted == count, f"{noted} records are not {count}")
                self.next += count
                self.extent.note(position, batch)
            case Grant(epoch, owner, ttl_ms):
                check(epoch == self.epoch + 1, f"writer {epoch} after {self.epoch}")
                self.epoch, self.owner, self.ttl_ms = epoch, owner, ttl_ms
            case Release(epoch):
                check(epoch == self.epoch, f"release of {epoch} in {self.epoch}")
                self.owner, self.ttl_ms = "", 0
            case Truncate(position):
                check(position <= self.next, f"{position} is not there yet")
                self.first = max(self.first, position)
                self.extent.truncate(self.first)
            case Plan(plan, wanted):
                check(plan > self.plan, f"plan {plan} after {self.plan}")
                check(bool(wanted), "a plan without voters")
                self.plan, self.wanted = plan, wanted
            case Reserve(until):
                check(until > self.stamps, f"{until} after {self.stamps}")
                self.stamps = until
        return entry
