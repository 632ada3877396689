"""Random writes of a Raft group, crashes at any point, against lists."""

from dataclasses import dataclass, replace
from random import Random

import pytest
from msgspec import structs

from braidlog import _native
from braidlog.errors import StoreFailedError
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import Base, Entry, EntryKind, HardState, Membership, Stored, Write
from braidlog.store.node_store import NodeStore

SEGMENT = 64 << 10
NO_HARD = HardState()
FIRST = Base(membership=Membership(voters=(1, 2, 3)))


def opened(disk: _native.MemoryDisk) -> NodeStore:
    return NodeStore(
        "/n", entropy=7, disk=disk, segment_bytes=SEGMENT, wal_bytes_max=64 * SEGMENT
    )


@dataclass(frozen=True)
class Model:
    """What a disk that never crashes would hold."""

    base: Base = FIRST
    entries: tuple[Entry, ...] = ()
    hard: HardState = NO_HARD

    @property
    def next(self) -> int:
        return self.base.index + len(self.entries) + 1

    def steps(self, write: Write) -> list["Model"]:
        """Return the states that a crash inside of the write may leave, in order."""
        found = []
        now = self
        if write.base is not None:
            kept = tuple(e for e in now.entries if e.index > write.base.index)
            now = replace(now, base=write.base, entries=() if write.reset else kept)
            found.append(now)
        if write.entries:
            first = write.entries[0].index
            kept = now.entries[: first - now.base.index - 1]
            found.append(replace(now, entries=kept))
            now = replace(now, entries=kept + write.entries)
            found.append(now)
        if write.hard_state is not None:
            found.append(replace(now, hard=write.hard_state))
        return found or [self]

    def is_stored(self, stored: Stored) -> bool:
        return stored == Stored(self.base, self.entries, self.hard)


def random_write(random: Random, number: int, now: Model) -> Write:
    write = Write(number)
    kind = random.randrange(8)
    if kind == 0 and now.entries:
        entry = random.choice(now.entries)
        state = random.randbytes(random.randrange(200))
        base = replace(now.base, index=entry.index, term=entry.term, state=state)
        write = structs.replace(write, base=base)
    elif kind == 1:
        index = now.next + random.randrange(20)
        base = replace(now.base, index=index, term=number)
        write = structs.replace(write, base=base, reset=True)
    if kind != 0 or random.random() < 0.5:
        after = now.steps(write)[-1]
        begin = after.base.index + 1
        if random.random() < 0.8:
            begin = after.next
        elif after.entries:
            begin = random.choice(after.entries).index
        count = random.randrange(0 if write.base else 1, 6)
        entries = tuple(
            Entry(i, number, EntryKind.DATA, random.randbytes(random.randrange(3000)))
            for i in range(begin, begin + count)
        )
        write = structs.replace(write, entries=entries)
    if random.random() < 0.4:
        write = structs.replace(
            write, hard_state=HardState(number, random.randrange(4))
        )
    return write


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_leaves_a_prefix_of_the_writes(seed: int) -> None:
    random = Random(seed)
    disk = _native.MemoryDisk(seed)
    node = opened(disk)
    log = GroupLog.create(node, 1, FIRST)
    # Every state since the last one known to be durable.
    states, failed = [Model()], False
    for number in range(1, 120):
        write = random_write(random, number, states[-1])
        ticket = log.write(write)
        states += states[-1].steps(write)
        stored = log.load()
        assert states[-1].is_stored(replace(stored, entries=tuple(stored.entries)))
        if random.random() < 0.3:
            if node.durable() < ticket and random.random() < 0.5:
                disk.fail_next_sync(landed=random.random() < 0.5)
                with pytest.raises(StoreFailedError):
                    node.sync()
                failed = True
            else:
                node.sync()
                assert node.durable() >= ticket
                node.housekeeping()
                states = states[-1:]
        if failed or random.random() < 0.15:
            disk = disk.crash(random.choice(["drop", "keep", "subset", "torn"]))
            node = opened(disk)
            log = GroupLog(node, 1)
            stored = log.load()
            found = replace(stored, entries=tuple(stored.entries))
            failed = False
            here = [state for state in states if state.is_stored(found)]
            assert here, "not a state of any moment since the last sync"
            states = here[-1:]
