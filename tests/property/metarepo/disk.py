"""The disk of a member of the group: what was not synced is lost in a crash."""

from __future__ import annotations

from braidlog.raft import Base, Entry, HardState, Stored, Write


class Disk:
    def __init__(self, base: Base) -> None:
        self.base = base
        self.entries: dict[int, Entry] = {}
        self.hard = HardState()
        self.pending: list[Write] = []

    def sync(self) -> int:
        """Make everything durable; return the number of the last write."""
        number = 0
        for write in self.pending:
            self._store(write)
            number = write.number
        self.pending = []
        return number

    def _store(self, write: Write) -> None:
        if write.reset:
            self.entries = {}
        if write.base:
            self.base = write.base
        if write.entries:
            begin = write.entries[0].index
            self.entries = {i: e for i, e in self.entries.items() if i < begin}
            self.entries.update({entry.index: entry for entry in write.entries})
        if write.hard_state:
            self.hard = write.hard_state
        self.entries = {i: e for i, e in self.entries.items() if i > self.base.index}

    def crash(self) -> Stored:
        self.pending = []
        entries = tuple(self.entries[index] for index in sorted(self.entries))
        return Stored(self.base, entries, self.hard)
