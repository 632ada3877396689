"""The log of a group as a node sees it: what the core keeps of it, and what it means.

*Theory of operation.* Entries, terms, peers and writes on their way are in
`braidlog._native.Tail`, which does what every append does. It does not know what an
entry means: the base state and the memberships in the log are here, and so is what a
conflict or a snapshot changes. Both are one object.

*Invariants.* `base.index <= applied <= handed <= min(commit, durable)`, except that a
base just installed is ahead of `applied` until the shell has applied it;
`commit <= last`; nothing at or below `commit` is ever overwritten. The memberships are
that of the base and those of entries in the log, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from braidlog._native import Frame, Tail
from braidlog.raft import codec
from braidlog.raft.config import RaftConfig
from braidlog.raft.errors import MembershipError, RaftMessageError, check, fail
from braidlog.raft.membership import Membership
from braidlog.raft.progress import Mode, Progress
from braidlog.raft.state import Base, Entry, EntryKind, Mark, Stored

__all__ = ["Frame", "LogReader", "RaftLog", "memberships_of"]


class LogReader(Protocol):
    """Entries that are durable and no longer in memory."""

    def read(self, begin: int, end: int, bytes_max: int) -> Sequence[Entry]:
        """Return entries of `begin .. end`: at least one, about `bytes_max`."""


def memberships_of(entries: Iterable[Entry]) -> list[Membership]:
    """Decode the memberships among the entries.

    Raises:
        RaftMessageError: one is malformed or names another epoch than its index.
    """
    found = []
    for entry in entries:
        if entry.kind is EntryKind.MEMBERSHIP:
            try:
                membership = codec.decode_membership(entry.data)
            except MembershipError as error:
                raise RaftMessageError(str(error)) from error
            if membership.epoch != entry.index:
                msg = f"membership of epoch {membership.epoch} at index {entry.index}"
                raise RaftMessageError(msg)
            found.append(membership)
    return found


class RaftLog(Tail):
    """Base state, memberships, and the log in the core; see the module."""

    def __new__(
        cls, config: RaftConfig, base: Base, reader: LogReader | None = None
    ) -> RaftLog:
        """Begin with nothing behind `base`."""
        return super().__new__(
            cls,
            base,
            reader,
            node=config.id,
            cache_bytes_max=config.cache_bytes_max,
            message_bytes_max=config.message_bytes_max,
            window_messages=config.window_messages,
            window_bytes=config.window_bytes,
        )

    def __init__(
        self, config: RaftConfig, base: Base, reader: LogReader | None = None
    ) -> None:
        """Begin with the membership of `base`."""
        self._made_of = config, reader
        self.base = base
        self._memberships = [base.membership]
        self.membership = base.membership
        """The latest membership in the log, committed or not."""

    @classmethod
    def restore(
        cls,
        config: RaftConfig,
        stored: Stored,
        *,
        applied: int,
        reader: LogReader | None,
    ) -> RaftLog:
        """Return the log that a disk holds: first the base, then the entries.

        `applied` is what the state machine has durably applied; with the base's index
        it starts from the base.
        """
        base = stored.base
        epoch = base.membership.epoch
        check(epoch <= base.index, f"a base before its membership of {epoch}")
        log = cls(config, base, reader)
        # What was applied was committed, and the stored commit index may be older.
        commit = max(stored.hard_state.commit, base.index, applied)
        if stored.mark is not None:
            log._skip(stored.mark)
        begin = log.last
        for entry in stored.entries:
            if entry.index > begin:
                log.append((entry,))
                log.loaded(commit)
        check(commit <= log.last, f"commit {commit} is beyond the end {log.last}")
        check(applied >= base.index, f"applied {applied} is below the base")
        log.resume(applied)
        return log

    def __copy__(self) -> RaftLog:
        """Return a log that goes on as this one would."""
        config, reader = self._made_of
        copy = RaftLog(config, self.base, reader)
        copy.become_copy_of(self)
        copy._remember(list(self._memberships))
        return copy

    def _skip(self, mark: Mark) -> None:
        """Know what has to be known of entries that are in the state already."""
        base = self.base
        behind = [(index, term) for index, term in mark.runs if index > base.index]
        before = [term for index, term in mark.runs if index <= base.index]
        check(base.index <= mark.index, "a mark before the base")
        check(before[-1:] == [base.term], f"the base is of another term than {before}")
        self.skip_to(mark.index, behind)
        later = [m for m in mark.memberships if m.epoch > base.index]
        self._remember([base.membership, *later])

    def mark(self) -> Mark:
        """Return what a start needs that begins with what is applied."""
        index = self.applied
        runs = tuple(run for run in self.runs() if run[0] <= index)
        memberships = tuple(m for m in self._memberships if m.epoch <= index)
        return Mark(index, runs, memberships)

    # --- looking

    def membership_at(self, index: int) -> Membership:
        """Return the membership that was in force at `index` of this log."""
        if index < self.base.index:
            fail(f"membership at {index} is below the base")
        latest = self._memberships[-1]
        if latest.epoch <= index:
            return latest
        return next(m for m in reversed(self._memberships) if m.epoch <= index)

    def tail_bytes(self) -> int:
        """Return the bytes of data that are not committed."""
        return self.data_bytes(self.commit + 1, self.last + 1)

    def progress(self, node: int) -> Progress | None:
        """Return what is known of a follower now."""
        known = self.peer(node)
        if known is None:
            return None
        following, match, mode, active, probed, nudge, told, base, ticks = known
        return Progress(
            following, match, Mode(mode), active, probed, nudge, told, base, ticks
        )

    # --- changing

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end.

        Raises:
            RaftMessageError: a membership among them is malformed; nothing is changed.
        """
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                memberships = memberships_of(entries)
                super().append(entries)
                self._remember([*self._memberships, *memberships])
                return
        super().append(entries)

    def splice(self, entries: Sequence[Entry]) -> int | None:
        """Make the log contain a leader's entries; their predecessor matches.

        What is there already stays, also if it is longer. From the first conflict on
        the log is replaced (Raft, 5.3). Returns the index where new entries begin.
        """
        for at, entry in enumerate(entries):
            if self.term(entry.index) != entry.term:
                if entry.index <= self.last:
                    self.cut(entry.index)
                self.append(entries[at:])
                return entry.index
        return None

    def cut(self, begin: int) -> None:
        """Cut the log from `begin` on, and what it says of the membership there."""
        super().cut(begin)
        self._remember([m for m in self._memberships if m.epoch < begin])

    def fold(self, index: int, state: bytes) -> None:
        """Move the start of the log behind `index`; `state` is the folded state there.

        What was uncommitted or not applied never goes.
        """
        self.fold_to(index)
        term = self.term(index)
        assert term is not None
        base = Base(index, term, self.membership_at(index), state)
        later = [m for m in self._memberships if m.epoch > index]
        self._remember([base.membership, *later])
        self.base = base

    def restart_at(self, base: Base) -> None:
        """Replace everything by a base that a leader sent; it is not applied yet."""
        self.restart_behind(base.index, base.term)
        self.base = base
        self._remember([base.membership])

    def _remember(self, memberships: list[Membership]) -> None:
        self._memberships = memberships
        self.membership = memberships[-1]
        self.unsettle()  # A lane knows one membership.
