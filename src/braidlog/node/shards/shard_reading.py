"""Reads the records of a shard: batches out of the entries of its group.

*Invariants.* Only what is applied here is read, so a majority has it. A position that
was truncated says so, and is never just empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.errors import CorruptionError, NotReadyError, TrimmedError
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import Entry, EntryKind
from braidlog.shard.entries import HEAD_BYTES, place_of
from braidlog.shard.member import ShardMember
from braidlog.wire.messages import Read, Records, Run

_NEAR: Final = 32
"""Entries that are read and passed over rather than searched through."""
_SCAN_BYTES: Final = 1 << 20
"""Entries that are looked at together for where a position begins."""


@dataclass(slots=True)
class _Core:
    """What readers of any stream may set."""

    watched: bool = False


class ShardReplica:
    """A shard as those see it who read; see `braidlog.node.replication.reader`."""

    stopped = False

    def __init__(self, stream: int, member: ShardMember, log: GroupLog) -> None:
        """Read what a member has applied."""
        self.core = _Core()
        self.damaged = False
        """Whether something could not be read."""
        self._stream = stream
        self._member = member
        self._log = log

    @property
    def committed(self) -> int:
        """Return the first position that is not committed here."""
        return self._member.state.next

    @property
    def high_watermark(self) -> int:
        """Return the last position that is committed here."""
        return self._member.state.next - 1

    def read(
        self, message: Read, *, expired: bool
    ) -> tuple[Records, tuple[bytes, ...]] | None:
        """Return committed batches; None: there is nothing yet, and time to wait.

        Raises:
            TrimmedError: the position was truncated.
            NotReadyError: the first record is damaged here; others have it.
            CorruptionError: it is damaged, and there is no other member.
        """
        state = self._member.state
        begin, end = max(message.begin, 1), state.next
        if begin < state.first:
            msg = f"the log was trimmed: it begins at position {state.first}"
            raise TrimmedError(msg, first=state.first)
        if begin >= end:
            return self._answer((), (), begin) if expired else None
        try:
            llsns, batches = self._batches(begin, max(message.bytes_max, 1))
        except CorruptionError as error:
            if len(self._member.raft.core.membership.voters) == 1:
                raise
            # Others have what cannot be read here.
            msg = f"records of shard {self._stream} are damaged on this node: {error}"
            raise NotReadyError(msg) from error
        return self._answer(llsns, batches, begin)

    def _batches(
        self, begin: int, bytes_max: int
    ) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        log = self._member.raft.core.log
        index = self._index_of(begin)
        llsns: list[int] = []
        batches: list[bytes] = []
        size = 0
        damage: CorruptionError | None = None
        while index <= log.applied:
            wanted = max(1, min(bytes_max - size, _SCAN_BYTES))
            try:
                entries = self._stored(index, log.applied + 1, wanted)
            except CorruptionError as error:
                if batches:
                    break  # Whoever asks for the next one is told.
                # It may be one before what is asked for.
                index, damage = index + 1, error
                continue
            for entry in entries:
                index = entry.index + 1
                if entry.kind is not EntryKind.DATA:
                    continue
                place = place_of(entry.data)
                if place is None or sum(place) <= begin:
                    continue
                if damage is not None and not batches and place[0] > begin:
                    raise damage
                length = len(entry.data) - HEAD_BYTES
                if batches and size + length > bytes_max:
                    return tuple(llsns), tuple(batches)
                llsns.append(place[0])
                batches.append(entry.data[HEAD_BYTES:])
                size += length
            if size >= bytes_max:
                break
        if damage is not None and not batches:
            raise damage
        return tuple(llsns), tuple(batches)

    def _stored(self, index: int, end: int, bytes_max: int) -> Sequence[Entry]:
        """Return entries from an index on, no further than to a damaged one.

        Raises:
            CorruptionError: the first one is damaged.
        """
        while True:
            try:
                return self._log.read(index, end, bytes_max)
            except CorruptionError:
                self.damaged = True
                if bytes_max == 1:
                    raise
                bytes_max = max(1, bytes_max // 8)

    def _index_of(self, position: int) -> int:
        """Return the index of an entry that is not behind a position, but near it."""
        log = self._member.raft.core.log
        low, high = self._member.places.around(position)
        low = max(low, log.base.index + 1)
        high = high or log.applied + 1
        while high - low > _NEAR:
            middle = (low + high) // 2
            found = self._append_from(middle, high)
            if found is None or found[1] > position:
                high = middle
            else:
                low = found[0]
        return low

    def _append_from(self, index: int, end: int) -> tuple[int, int] | None:
        """Return index and position of the first append of ``index .. end``."""
        while index < end:
            try:
                entries = self._stored(index, end, 1)
            except CorruptionError:
                index += 1  # What is asked for may lie behind it.
                continue
            for entry in entries:
                if entry.kind is EntryKind.DATA:
                    place = place_of(entry.data)
                    if place is not None:
                        return entry.index, place[0]
                index = entry.index + 1
        return None

    def _answer(
        self, llsns: tuple[int, ...], batches: tuple[bytes, ...], begin: int
    ) -> tuple[Records, tuple[bytes, ...]]:
        end = begin
        if batches:
            end = llsns[-1] + _count(batches[-1])
        # In a shard both numbers of a record are its position.
        runs = (Run(llsns[0], llsns[0], end - llsns[0]),) if batches else ()
        complete = end - 1 if batches else self.high_watermark
        first = self._member.state.first
        sizes = tuple(map(len, batches))
        answer = Records(self._stream, runs, llsns, sizes, complete, first, end)
        return answer, batches


def _count(batch: bytes) -> int:
    return int.from_bytes(batch[8:12], "little")
