"""The log of a group as a node sees it: base state, terms, a tail in memory.

*Theory of operation.* Four numbers move on their own: `base.index` (the log starts
behind it), `applied`, `commit` and `last`. Only the owner of the state machine moves
the base, so a follower that gets it and the log behind it has every entry that was not
truncated. What is durable is another matter: `last` counts entries in memory, `durable`
those that the shell reported stored.

Entries are in memory from some index on; older ones are read through a `LogReader`,
if there is one. Terms are kept as runs, so any index can be checked without reading.

*Invariants.* `base.index <= applied <= handed <= min(commit, durable)`, except that a
base just installed is ahead of `applied` until the shell has applied it;
`commit <= last`; nothing at or below `commit` is ever overwritten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from braidlog.raft.errors import check, fail
from braidlog.raft.log import LogReader, memberships_of
from braidlog.raft.membership import Membership
from braidlog.raft.state import Base, Entry


class RaftLog:
    """Base state and log, in memory; see the module."""

    def __init__(
        self, base: Base, reader: LogReader | None = None, cache_bytes_max: int = 0
    ) -> None:
        """Begin with nothing behind `base`."""
        self._reader = reader
        self._cache_bytes_max = cache_bytes_max
        self._start(base)
        self.commit = base.index
        self.durable = base.index
        self.applied = base.index
        self.handed = base.index
        self._handouts: deque[tuple[int, int]] = deque()

    def _start(self, base: Base) -> None:
        self.base = base
        self._entries: list[Entry] = []
        self._begin = base.index + 1
        self.last = base.index
        """Index of the last entry, or of the base."""
        self._cached = 0
        self._run_begins = [base.index]
        self._run_terms = [base.term]
        self._memberships = [base.membership]

    # --- looking

    @property
    def last_term(self) -> int:
        """Return the term of the last entry, or of the base."""
        return self._run_terms[-1]

    @property
    def membership(self) -> Membership:
        """Return the latest membership in the log, committed or not."""
        return self._memberships[-1]

    def membership_at(self, index: int) -> Membership:
        """Return the membership that was in force at `index` of this log."""
        if index < self.base.index:
            fail(f"membership at {index} is below the base")
        latest = self._memberships[-1]
        if latest.epoch <= index:
            return latest
        return next(m for m in reversed(self._memberships) if m.epoch <= index)

    def term(self, index: int) -> int | None:
        """Return the term of an entry or the base, None outside of the log."""
        if not self.base.index <= index <= self.last:
            return None
        if index >= self._run_begins[-1]:
            return self._run_terms[-1]
        return self._run_terms[bisect_right(self._run_begins, index) - 1]

    def up_to_date(self, last_index: int, last_term: int) -> bool:
        """Tell whether a log with that end is at least as new (Raft, 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last)

    def last_not_after(self, index: int, term: int) -> int:
        """Return the last index up to `index` whose term is at most `term`.

        Both sides of a conflict use it to skip whole terms, so that a probe is needed
        for each term at most. Stops at the base.
        """
        index = min(index, self.last)
        while index > self.base.index:
            run = bisect_right(self._run_begins, index) - 1
            if self._run_terms[run] <= term:
                break
            index = self._run_begins[run] - 1
        return max(index, self.base.index)

    def read(self, begin: int, end: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return entries of `begin .. end`: at least one, about `bytes_max`."""
        first, last = self.base.index + 1, self.last
        if not first <= begin <= end <= last + 1:
            fail(f"entries {begin}..{end} are not in {first}..{last + 1}")
        if begin == end:
            return ()
        if begin < self._begin:
            return self._read_back(begin, min(end, self._begin), bytes_max)
        # By index: an iterator would have to pass over all that is before.
        size, at, stop = 0, begin - self._begin, end - self._begin
        start = at
        while at < stop:
            size += self._entries[at].size
            if size > bytes_max and at > start:
                break
            at += 1
        return tuple(self._entries[start:at])

    def _read_back(self, begin: int, end: int, bytes_max: int) -> tuple[Entry, ...]:
        check(self._reader is not None, "entries left the memory without a reader")
        assert self._reader is not None
        entries = tuple(self._reader.read(begin, end, bytes_max))
        check(0 < len(entries) <= end - begin, f"no entries from {begin} in storage")
        for index, entry in enumerate(entries, begin):
            found = (entry.index, entry.term)
            check(found == (index, self.term(index)), f"storage has {found} at {index}")
        return entries

    def tail_bytes(self) -> int:
        """Return the bytes of data that are not committed."""
        begin = max(self.commit + 1, self._begin)
        return sum(len(e.data) for e in self._entries[begin - self._begin :])

    # --- changing

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end.

        Raises:
            RaftMessageError: a membership among them is malformed; nothing is changed.
        """
        memberships = memberships_of(entries)
        for entry in entries:
            if entry.index != self.last + 1:
                fail(f"entry {entry.index} leaves a gap")
            if entry.term != self.last_term:
                if entry.term < self.last_term:
                    fail(f"terms fall at {entry.index}")
                self._run_begins.append(entry.index)
                self._run_terms.append(entry.term)
            self._entries.append(entry)
            self._cached += entry.size
            self.last = entry.index
        self._memberships += memberships

    def splice(self, entries: Sequence[Entry]) -> int | None:
        """Make the log contain a leader's entries; their predecessor matches.

        What is there already stays, also if it is longer. From the first conflict on
        the log is replaced (Raft, 5.3). Returns the index where new entries begin.
        """
        for at, entry in enumerate(entries):
            if self.term(entry.index) != entry.term:
                if entry.index <= self.last:
                    self._cut(entry.index)
                self.append(entries[at:])
                return entry.index
        return None

    def _cut(self, begin: int) -> None:
        check(begin > self.commit, f"a conflict at {begin}, committed is {self.commit}")
        check(begin >= self._begin, f"a conflict at {begin}, which left the memory")
        self._cached -= sum(e.size for e in self._entries[begin - self._begin :])
        del self._entries[begin - self._begin :]
        self.last = begin - 1
        while self._run_begins[-1] >= begin:
            self._run_begins.pop()
            self._run_terms.pop()
        while self._memberships[-1].epoch >= begin:
            self._memberships.pop()
        self.durable = min(self.durable, begin - 1)

    def commit_to(self, index: int) -> None:
        """Commit up to `index`; a smaller one changes nothing."""
        if index > self.last:
            fail(f"commit {index} is beyond the end {self.last}")
        self.commit = max(self.commit, index)

    def fold(self, index: int, state: bytes) -> None:
        """Move the start of the log behind `index`; `state` is the folded state there.

        What was uncommitted or not applied never goes.
        """
        check(self.base.index <= index <= self.applied, f"cannot fold up to {index}")
        term = self.term(index)
        assert term is not None
        base = Base(index, term, self.membership_at(index), state)
        drop = max(index + 1 - self._begin, 0)
        self._cached -= sum(e.size for e in self._entries[:drop])
        del self._entries[:drop]
        self._begin = max(self._begin, index + 1)
        kept = bisect_right(self._run_begins, index) - 1
        del self._run_begins[:kept], self._run_terms[:kept]
        self._run_begins[0] = index
        later = [m for m in self._memberships if m.epoch > index]
        self._memberships = [base.membership, *later]
        self.base = base

    def restart_at(self, base: Base) -> None:
        """Replace everything by a base that a leader sent; it is not applied yet."""
        check(base.index > self.commit, f"base {base.index} is below {self.commit}")
        self._start(base)
        self.commit = base.index
        self.durable = 0
        self._handouts.clear()

    # --- handing out

    @property
    def install_pending(self) -> bool:
        """Tell whether a base waits to be stored or applied."""
        return self.applied < self.base.index

    def take_base(self) -> Base | None:
        """Return the base if it is durable and has not been handed out."""
        if self.handed < self.base.index <= self.durable:
            self.handed = self.base.index
            return self.base
        return None

    def take_committed(self, bytes_max: int) -> tuple[Entry, ...]:
        """Return what may be applied next.

        Only entries that are durable here: a leader may commit before its own write.
        """
        end = min(self.commit, self.durable) + 1
        if self.handed < self.base.index or self.handed + 1 >= end:
            return ()
        room = bytes_max - sum(size for _, size in self._handouts)
        if room <= 0:
            return ()
        entries = self.read(self.handed + 1, end, room)
        self.handed = entries[-1].index
        self._handouts.append((self.handed, sum(e.size for e in entries)))
        return entries

    @property
    def has_committed(self) -> bool:
        """Tell whether `take_base` or `take_committed` may have something."""
        return self.handed < max(min(self.commit, self.durable), self.base.index)

    def applied_to(self, index: int) -> None:
        """Note what the state machine has applied."""
        if not self.applied <= index <= self.handed:
            fail(f"{index} was not handed out")
        while self._handouts and self._handouts[0][0] <= index:
            self._handouts.popleft()
        self.applied = index
        self.evict()

    def evict(self) -> None:
        """Drop what can be read back, once there is more in memory than wanted."""
        if self._reader is None or self._cached <= self._cache_bytes_max:
            return
        end = min(self.commit, self.durable) + 1
        drop = 0
        while self._cached > self._cache_bytes_max and self._begin + drop < end:
            self._cached -= self._entries[drop].size
            drop += 1
        del self._entries[:drop]
        self._begin += drop
