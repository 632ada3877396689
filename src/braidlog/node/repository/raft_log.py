"""The log of one Raft group on the disk of its node.

*Theory of operation.* A group has two logs in the node's directory. ``group.<number>``
holds the entries, each a record whose LLSN is its index, with the base as its options;
``group.<number>.hard`` has no records, its options are the hard state. Overwriting is a
rollback, folding into the base a commit and a trim: what the base contains is never
rolled back. A write with `reset` begins the log anew behind its base, in one step.

    key    u8 kind, u64 term     of the record of an entry; little-endian
    value  data of the entry

*Invariants.* Frames are written in the order base, entries, hard state, and become
durable in that order. So after a crash there is a prefix of the writes, the last of
them perhaps in part: with its base and no entries, with entries discarded and not yet
replaced, or without its hard state. The next index is `base.index + 1` or greater.

*Bounds.* Bases are kept in memory and at the head of each segment of the write-ahead
log: all of a node together, with names and options, take at most a quarter of a segment
(16 MiB by default). A write whose base is larger raises `TooLargeError` and changes
nothing. An entry takes at most 16 MiB or a quarter of a segment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from braidlog import _native
from braidlog.errors import AlreadyExistsError, CorruptionError, NotFoundError
from braidlog.raft import Base, Entry, EntryKind, HardState, Stored, Write, codec
from braidlog.raft.errors import check, fail
from braidlog.raft.state import ENTRY_OVERHEAD
from braidlog.store.node_store import GROUP_PREFIX, NodeStore

_KEY: Final = struct.Struct("<BQ")
_KINDS: Final = {kind.value: kind for kind in EntryKind}
_BATCH_BYTES: Final = 1 << 20
_READ_BYTES: Final = 4 << 20


class GroupLog:
    """What a Raft group stores on this node; also the `LogReader` of its log."""

    def __init__(self, node: NodeStore, group: int, prefix: str = GROUP_PREFIX) -> None:
        """Use the logs that `create` made; ``prefix`` says what the group is for.

        Raises:
            NotFoundError: the node has nothing of the group.
            CorruptionError: base and entries do not fit together.
        """
        name = f"{prefix}{group}"
        options = node.options(name)
        if not options:
            raise NotFoundError(f"this node has no log of Raft group {group}")
        self._node = node
        # A batch has to fit into a quarter of a segment, with what belongs to it.
        self._batch_bytes = min(_BATCH_BYTES, node.stats()["segment_bytes"] // 8)
        self._log = node.open(name)
        self._hard = node.open(f"{name}.hard")
        base = codec.decode_base(options)
        self._base_index = base.index
        low, _, following = self._numbers()
        if not low - 1 <= base.index < following:
            raise CorruptionError(
                f"{name} has the entries from {low} to before {following}, which do "
                f"not follow its base at {base.index}"
            )
        self._fold(base.index)

    @classmethod
    def create(
        cls,
        node: NodeStore,
        group: int,
        base: Base | None = None,
        prefix: str = GROUP_PREFIX,
    ) -> GroupLog:
        """Create the group's logs with this base, which has the first membership.

        Durable on return. What a crash left of an earlier call is used.

        Raises:
            AlreadyExistsError: the node has the group.
        """
        name, base = f"{prefix}{group}", base or Base()
        hard = f"{name}.hard"
        if node.options(name):
            msg = f"this node has a log of Raft group {group} already"
            raise AlreadyExistsError(msg)
        for created in (hard, name):
            if node.options(created) is None:
                node.create(created)
        node.open(hard).alter(codec.encode(HardState(base.term)))
        # Without options the group is not there yet, and this gives them.
        node.open(name).restart(0, base.index + 1, codec.encode(base))
        node.sync()
        return cls(node, group, prefix)

    @property
    def name(self) -> str:
        """Return its name in the node's log."""
        return self._log.name

    @property
    def stored_as(self) -> int:
        """Return the number of its entries in the node's log."""
        return self._log.number

    def delete(self) -> None:
        """Delete everything of the group; durable on return."""
        self._node.delete(self._log.name)
        self._node.delete(self._hard.name)

    def load(self, behind: int = 0) -> Stored:
        """Return what is stored; entries are read as they are iterated over.

        They begin behind the base, or ``behind`` a later index.
        """
        base = codec.decode_base(self._node.options(self._log.name) or b"")
        hard = codec.decode_hard_state(self._node.options(self._hard.name) or b"")
        return Stored(base, self._entries(max(base.index, behind) + 1), hard)

    def write(self, write: Write) -> int:
        """Store a write; return the ticket with which it is durable.

        Raises:
            TooLargeError: the base, or an entry; see the module for the bounds.
            LogFullError: there is no room; a tail that the entries replace may be gone.
        """
        if write.reset:
            self._reset(write.base)
        elif write.base is not None:
            check(write.base.index < self._numbers()[2], "the base is beyond the log")
            self._log.alter(codec.encode(write.base))
            self._fold(write.base.index)
        if write.entries:
            self._append(write.entries)
        if write.hard_state is not None:
            self._hard.alter(codec.encode(write.hard_state))
        return self._node.ticket()

    def read(self, begin: int, end: int, bytes_max: int) -> Sequence[Entry]:
        """Return entries of `begin .. end`: at least one, about `bytes_max`.

        Raises:
            TrimmedError, BeyondEndError: `begin` is not in the log.
            CorruptionError: a record is not an entry.
        """
        found: list[Entry] = []
        size = 0
        batches = self._log.native.read(self._log.number, begin, end, bytes_max)
        for llsn, _, data in batches:
            for entry in entries_of(llsn, data):
                if not begin <= entry.index < end:
                    continue
                if found and size + entry.size > bytes_max:
                    return found
                size += entry.size
                found.append(entry)
        return found

    # -- the stream --------------------------------------------------------------

    def _numbers(self) -> tuple[int, int, int]:
        """Return the first index kept, the first not folded, and the next one."""
        low, committed, following, *_ = self._log.native.state(self._log.number)
        return low, committed, following

    def _reset(self, base: Base | None) -> None:
        if base is None:
            check(base is not None, "a reset without a base")
            return
        self._log.restart(0, base.index + 1, codec.encode(base))

    def _fold(self, index: int) -> None:
        low, folded, _ = self._numbers()
        first = index + 1
        if first > folded:
            run = (index, folded, folded, first - folded, index)
            self._log.native.commit(self._log.number, 0, run)
        if first > low:
            self._log.native.trim(self._log.number, first)

    def _append(self, entries: tuple[Entry, ...]) -> None:
        first, native, number = entries[0].index, self._log.native, self._log.number
        batches = _batches(entries, self._batch_bytes)
        _, folded, following, *_ = native.state(number)
        if not folded <= first <= following:
            fail(f"entry {first} is not in the log")
        if first < following:
            native.rollback(number, 0, first)
        # Without entries there would be no trim, and so never room again.
        native.place_reserved(number, 0, first, batches)
        self._log.hurry(sum(map(len, batches)))

    def _entries(self, begin: int) -> Iterator[Entry]:
        end = self._numbers()[2]
        while begin < end:
            found = self.read(begin, end, _READ_BYTES)
            yield from found
            begin += len(found)


def hard_name(group: int) -> str:
    """Return the name of the log whose options are the hard state of a group."""
    return f"{GROUP_PREFIX}{group}.hard"


def _batches(entries: Iterable[Entry], bytes_max: int) -> list[bytes]:
    """Encode entries: as many in a batch as fit, and one at least."""
    batches: list[bytes] = []
    values: list[bytes] = []
    keys: list[bytes] = []
    size = 0
    for entry in entries:
        counts = len(entry.data) + ENTRY_OVERHEAD
        if values and size + counts > bytes_max:
            batches.append(_native.encode_batch(values, keys, timestamps=0))
            values, keys, size = [], [], 0
        values.append(entry.data)
        keys.append(_KEY.pack(entry.kind, entry.term))
        size += counts
    batches.append(_native.encode_batch(values, keys, timestamps=0))
    return batches


def entries_of(index: int, data: bytes) -> Iterator[Entry]:
    """Return the entries in a batch.

    Raises:
        CorruptionError: a record is not an entry.
    """
    for record in _native.Batch(data).records(index):
        key = record.key or b""
        if len(key) != _KEY.size:
            msg = f"the record at index {record.position} is not a Raft entry"
            raise CorruptionError(msg)
        kind, term = _KEY.unpack(key)
        if kind not in _KINDS:
            raise CorruptionError(
                f"the Raft entry at index {record.position} has the unknown kind {kind}"
            )
        yield Entry(record.position, term, _KINDS[kind], record.value)
