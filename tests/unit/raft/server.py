"""A node with a disk that loses what was not synced, and a state machine.

Used by the scripts and by the simulation. Everything is a list in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from braidlog.raft import (
    Base,
    Effects,
    Entry,
    EntryKind,
    Frame,
    HardState,
    Membership,
    Message,
    RaftConfig,
    RaftNode,
    ReadFailed,
    ReadState,
    Stored,
    Write,
)
from braidlog.raft.codec import decode_message


def said(effects: Effects) -> tuple[Message, ...]:
    """Return what a node sends, also what is encoded already."""
    return tuple(
        decode_message(each.data) if isinstance(each, Frame) else each
        for each in effects.messages
    )


@dataclass
class Disk:
    """Base, entries and hard state; writes are stored in order by `sync`."""

    base: Base
    entries: list[Entry] = field(default_factory=list)
    hard_state: HardState = field(default_factory=HardState)
    pending: list[Write] = field(default_factory=list)

    def sync(self, count: int | None = None) -> int:
        """Store the first writes; return the number of the last one, 0 if none."""
        count = len(self.pending) if count is None else count
        number = 0
        for write in self.pending[:count]:
            self._store(write, len(write.entries), True)
            number = write.number
        del self.pending[:count]
        return number

    def crash(self, keep: int = 0, torn: int = 0) -> None:
        """Lose all but the first writes, and of the next one all but some entries."""
        self.sync(keep)
        if torn and self.pending:
            self._store(self.pending[0], torn - 1, False)
        self.pending.clear()

    def _store(self, write: Write, entries: int, whole: bool) -> None:
        if write.reset:
            self.entries.clear()
        if write.base is not None:
            self.base = write.base
            self.entries = [e for e in self.entries if e.index > write.base.index]
        if write.entries[:entries]:
            del self.entries[write.entries[0].index - self.base.index - 1 :]
            self.entries += write.entries[:entries]
        if whole and write.hard_state is not None:
            self.hard_state = write.hard_state

    def read(self, begin: int, end: int, bytes_max: int) -> list[Entry]:
        """Read entries back, at least one."""
        first = self.base.index + 1
        found: list[Entry] = []
        size = 0
        for entry in self.entries[begin - first : end - first]:
            size += entry.size
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def stored(self) -> Stored:
        return Stored(self.base, list(self.entries), self.hard_state)


@dataclass
class Machine:
    """A state machine that remembers a digest of all it has applied."""

    index: int = 0
    digest: bytes = b""
    log: list[tuple[int, bytes]] = field(default_factory=list)

    def apply(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            assert entry.index == self.index + 1
            self.index = entry.index
            if entry.kind is EntryKind.DATA:
                self.digest = hashlib.md5(self.digest + entry.data).digest()[:6]
                self.log.append((entry.index, entry.data))

    def install(self, base: Base) -> None:
        self.index, self.digest, self.log = base.index, base.state, []

    def copy(self) -> Machine:
        return Machine(self.index, self.digest, list(self.log))


class Server:
    """One node, its disk, its state machine."""

    def __init__(
        self,
        id: int,  # noqa: A002
        membership: Membership,
        jitter: Callable[[], int],
        settings: dict[str, Any],
        *,
        cached: bool = True,
    ) -> None:
        self.id = id
        self.jitter = jitter
        self.settings = settings
        self.cached = cached
        self.disk = Disk(Base(membership=membership))
        # States of the machine by index, to fold the log with.
        self.states: dict[int, bytes] = {0: b""}
        self.checkpoint = Machine()
        self.incarnation = 0
        self.reads: list[ReadState | ReadFailed] = []
        self.contexts: set[int] = set()
        self.up = False
        self.start()

    def start(self) -> None:
        """Start from the disk, and from the checkpoint if it is newer than the base."""
        self.up = True
        self.incarnation += 1
        self.machine = self.checkpoint.copy()
        if self.machine.index < self.disk.base.index:
            self.machine.install(self.disk.base)
        config = RaftConfig(
            id=self.id,
            incarnation=self.incarnation,
            jitter=self.jitter,
            **self.settings,
        )
        self.node = RaftNode(
            config,
            self.disk.stored(),
            applied=self.machine.index,
            reader=None if self.cached else self.disk,
        )

    def crash(self, keep: int = 0, torn: int = 0) -> None:
        self.up = False
        self.disk.crash(keep, torn)

    def sync(self, count: int | None = None) -> None:
        number = self.disk.sync(count)
        if number:
            self.node.durable(number)

    def pump(self) -> tuple[Effects, tuple[Message, ...]]:
        """Take the effects; store nothing yet, apply at once."""
        effects = self.node.effects()
        if effects.write is not None:
            self.disk.pending.append(effects.write)
        if effects.install is not None:
            self.machine.install(effects.install)
            self.states[self.machine.index] = self.machine.digest
            self.node.applied(effects.install.index)
        if effects.committed:
            for entry in effects.committed:
                self.machine.apply([entry])
                self.states[entry.index] = self.machine.digest
            self.node.applied(effects.committed[-1].index)
        self.reads += effects.reads
        return effects, said(effects)

    def truncate(self, index: int) -> None:
        self.node.truncate(index, self.states.get(index, b""))

    def save(self) -> None:
        """Make the state machine durable as it is."""
        self.checkpoint = self.machine.copy()
