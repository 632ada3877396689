"""The fault log of one node: what it was told to be, durable before it acts.

Calls wait for two syncs; an event loop gives them to a thread. One thread at a time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from braidlog.closable import Closable
from braidlog.errors import (
    ClosedError,
    FencedError,
    ForeignFormatError,
    InvalidArgumentError,
    StoreFailedError,
)
from braidlog.faultlog.configuration import Configuration
from braidlog.faultlog.errors import ForkedError
from braidlog.faultlog.record import NO_DIGEST, FaultRecord, digest_of, encode
from braidlog.faultlog.scan import SLOTS_MAX, SLOTS_MIN, offsets_of, scan
from braidlog.node.rescue.ring import Ring, RingFile

SLOTS_DEFAULT = 256


class FaultLog(Closable):
    """The records of one node, in a ring that never grows."""

    def __init__(self, ring: Ring, cluster: str, node: int) -> None:
        """Find the newest record of a ring, and give it its second copy if it has one.

        Raises:
            ForeignFormatError: The ring is another node's or cluster's.
            CorruptionError: The newest record may be lost.
            StoreFailedError: The second copy could not be written.
        """
        self._ring, self._failed, self._closed = ring, False, False
        self.cluster, self.node = cluster, node
        found = scan(ring.read(), path=ring.path)
        self._slots, self._newest = found.slots, found.newest
        self.notes = found.notes
        """What was torn or damaged and changes nothing, for the operator."""
        if found.newest is not None:
            check_owner(found.newest, cluster, node, ring.path)
            if found.incomplete:
                self._write(found.newest)

    @classmethod
    def open(
        cls,
        path: str | Path,
        cluster: str,
        node: int,
        *,
        create: bool = True,
        slots: int = SLOTS_DEFAULT,
    ) -> Self:
        """Open the ring `FAULTS` of a data directory, whose lock the caller holds.

        A ring that is there keeps its number of slots. Open with `create=False` where
        one has to be: a node that lost its ring must not go on as if it had none yet.

        Raises:
            NotFoundError: There is none, and `create` is false.
            ForeignFormatError: It is another node's or cluster's.
            CorruptionError: The newest record may be lost.
            UnavailableError: The system refused.
        """
        if slots % 2 or not SLOTS_MIN <= slots <= SLOTS_MAX:
            msg = f"{slots} slots: an even number of {SLOTS_MIN} to {SLOTS_MAX} is good"
            raise InvalidArgumentError(msg)
        ring = RingFile(Path(path), slots, create=create)
        try:
            return cls(ring, cluster, node)
        except BaseException:
            ring.close()
            raise

    @property
    def newest(self) -> FaultRecord | None:
        """Return the newest record; None if nothing was recorded yet."""
        return self._newest

    def record(
        self,
        configuration: Configuration,
        *,
        viable: bool,
        lost: tuple[int, ...] = (),
        state: bytes = NO_DIGEST,
    ) -> FaultRecord:
        """Write a configuration down; the node may act in it when this returns.

        A repeat of the newest record writes nothing. `lost` and `state` are what a
        rescue says beside it, see `FaultRecord`.

        Raises:
            FencedError: A newer configuration is recorded.
            ForkedError: One of the same number is, and says something else.
            InvalidArgumentError: The node is no member, or viable where it is listed.
            StoreFailedError: The disk failed; the log takes nothing more.
        """
        self._check_open()
        newest = self._newest
        if newest is not None:
            self._check_number(newest, configuration)
            if newest.same(configuration, viable):
                return newest
        record = FaultRecord(
            cluster=self.cluster,
            node=self.node,
            configuration=configuration,
            viable=viable,
            serial=newest.serial + 1 if newest else 1,
            previous=digest_of(newest) if newest else NO_DIGEST,
            lost=lost,
            state=state,
        )
        self._write(record)
        self._newest = record
        return record

    def close(self) -> None:
        """Close the ring; closing twice is once."""
        self._closed = True
        self._ring.close()

    def _check_open(self) -> None:
        if self._failed:
            raise StoreFailedError(
                f"an earlier write to {self._ring.path} failed, so nothing more is "
                "recorded"
            )
        if self._closed:
            raise ClosedError(f"{self._ring.path} is closed")

    def _check_number(self, newest: FaultRecord, configuration: Configuration) -> None:
        if configuration.contradicts(newest.configuration):
            msg = f"two different configurations have the number {configuration.number}"
            raise ForkedError(msg, number=newest.number, path=self._ring.path)
        if configuration.number < newest.number:
            msg = (
                f"configuration {configuration.number} is older than the newest "
                f"one, {newest.number}"
            )
            raise FencedError(
                msg, given=configuration.epoch, current=newest.configuration.epoch
            )

    def _write(self, record: FaultRecord) -> None:
        slot = encode(record)
        # What is on the disk is unknown until both copies are, whatever ends this.
        self._failed = True
        try:
            # One after the other: a crash may tear one copy, never both.
            for offset in offsets_of(record.serial, self._slots):
                self._ring.write(offset, slot)
        except OSError as error:
            raise StoreFailedError(f"{self._ring.path}: {error.strerror}") from error
        self._failed = False


def check_owner(record: FaultRecord, cluster: str, node: int, path: str) -> None:
    """Make sure that a record of a ring is of this node of this cluster.

    Raises:
        ForeignFormatError: It is not.
    """
    if (record.cluster, record.node) != (cluster, node):
        msg = (
            f"{path} belongs to node {record.node} of cluster "
            f"{record.cluster!r}, not to node {node} of cluster {cluster!r}"
        )
        hint = (
            "Check [node] data, [node] id and [cluster] name: one of them is not "
            "what this directory was made with"
        )
        raise ForeignFormatError(msg, path=path).advising(hint)
