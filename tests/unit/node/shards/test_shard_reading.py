"""A position of a shard is found in the log of its group, wherever it is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from braidlog import _native
from braidlog.errors import CorruptionError, NotReadyError, TrimmedError
from braidlog.node.repository.raft_log import GroupLog
from braidlog.node.shards.shard_reading import ShardReplica
from braidlog.raft import Entry, EntryKind
from braidlog.shard import ShardMember
from braidlog.shard.entries import Release, encode, encode_append
from braidlog.shard.places import Places
from braidlog.wire.messages import Read


class Entries:
    """A log in memory that counts what is read of it."""

    def __init__(self, seed: int, count: int, base: int) -> None:
        chance = random.Random(seed)
        self.entries: dict[int, Entry] = {}
        self.at: dict[int, int] = {}
        """Index of the entry of each position."""
        self.reads = 0
        self.damaged: set[int] = set()
        self.next = 1
        for index in range(base + 1, base + count + 1):
            kind = chance.random()
            if kind < 0.2:
                entry = Entry(index, 1, EntryKind.EMPTY)
            elif kind < 0.4:
                entry = Entry(index, 1, EntryKind.DATA, encode(Release(1)))
            else:
                size = chance.randint(1, 4)
                values = [b"%d" % (self.next + n) for n in range(size)]
                batch = _native.encode_batch(values, timestamps=1)
                data = encode_append(size, self.next, 0, batch)
                entry = Entry(index, 1, EntryKind.DATA, data)
                for position in range(self.next, self.next + size):
                    self.at[position] = index
                self.next += size
            self.entries[index] = entry

    def read(self, begin: int, end: int, bytes_max: int) -> Sequence[Entry]:
        self.reads += 1
        found: list[Entry] = []
        size = 0
        for index in range(begin, end):
            entry = self.entries[index]
            if found and size + entry.size > bytes_max:
                break
            if index in self.damaged:
                raise CorruptionError("damaged")
            size += entry.size
            found.append(entry)
        return found


def replica(
    log: Entries, base: int, noted: Sequence[int], voters: int = 3
) -> ShardReplica:
    places = Places()
    for position in noted:
        places.note(position, log.at[position])
    core = SimpleNamespace(
        log=SimpleNamespace(base=SimpleNamespace(index=base), applied=max(log.entries)),
        membership=SimpleNamespace(voters=tuple(range(1, voters + 1))),
    )
    member = SimpleNamespace(
        places=places,
        raft=SimpleNamespace(core=core),
        state=SimpleNamespace(first=1, next=log.next),
    )
    return ShardReplica(1, cast("ShardMember", member), cast("GroupLog", log))


@pytest.mark.parametrize("base", [0, 500])
@pytest.mark.parametrize("since", [1, 400, 3000])
def test_every_position_is_found(base: int, since: int) -> None:
    log = Entries(7, 2000, base)
    # Only entries that were applied since the start are noted.
    noted = [at for at in log.at if at >= since and log.at.get(at - 1) != log.at[at]]
    shard = replica(log, base, noted)
    for position in random.Random(1).sample(sorted(log.at), 300):
        found = shard.read(Read(1, position, True, 64, 0), expired=True)
        assert found is not None
        records, batches = found
        (first, *_), (batch, *_) = records.llsns, batches
        read = [r.position for r in _native.Batch(batch).records(first)]
        assert position in read


def test_a_position_is_found_with_few_reads() -> None:
    log = Entries(3, 20_000, 0)
    shard = replica(log, 0, [])
    shard.read(Read(1, log.next // 3, True, 64, 0), expired=True)
    assert log.reads < 100


def test_what_was_truncated_says_so() -> None:
    log = Entries(3, 100, 0)
    shard = replica(log, 0, [])
    shard._member.state.first = 50
    with pytest.raises(TrimmedError):
        shard.read(Read(1, 49, True, 64, 0), expired=True)


def test_pairs_are_bounded_and_stay_right() -> None:
    places = Places()
    for index in range(1, 4_000_000, 32):
        places.note(2 * index, index)
    assert len(places._indexes) <= 16_385
    chance = random.Random(1)
    for _ in range(1000):
        index = chance.randrange(1, 4_000_000)
        low, high = places.around(2 * index)
        assert low <= index
        assert index < high or not high


def test_what_is_not_damaged_is_read() -> None:
    log = Entries(11, 500, 0)
    log.damaged = {index for index in log.entries if index % 7 == 3}
    shard, alone = replica(log, 0, []), replica(log, 0, [], voters=1)
    for position, index in log.at.items():
        read = Read(1, position, True, 1 << 20, 0)
        if index in log.damaged:
            with pytest.raises(NotReadyError, match="damaged on this node"):
                shard.read(read, expired=True)
            with pytest.raises(CorruptionError):
                alone.read(read, expired=True)
            continue
        found = shard.read(read, expired=True)
        assert found is not None
        first, batch = found[0].llsns[0], found[1][0]
        assert position in [r.position for r in _native.Batch(batch).records(first)]
    assert shard.damaged
