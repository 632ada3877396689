"""What a node stores: entries, hard state, base state.

All three are values. `braidlog.raft.codec` has their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from msgspec import Struct

from braidlog.raft.membership import Membership

__all__ = [
    "ENTRY_OVERHEAD",
    "Base",
    "Entry",
    "EntryKind",
    "HardState",
    "Mark",
    "Stored",
]

ENTRY_OVERHEAD: Final = 32
"""Bytes that an entry counts for in windows and messages beside its data, so that
empty entries are bounded too."""


class EntryKind(IntEnum):
    """What the data of an entry is; the numbers are stored and never reused."""

    DATA = 1
    EMPTY = 2
    """A leader's first entry: commits what earlier terms left."""
    MEMBERSHIP = 3


class Entry(Struct, frozen=True):
    """One entry of the log. Index and term together identify it in its group."""

    index: int
    term: int
    kind: EntryKind = EntryKind.DATA
    data: bytes = b""

    @property
    def size(self) -> int:
        """Return the bytes that it counts for in a window or message."""
        return len(self.data) + ENTRY_OVERHEAD


class HardState(Struct, frozen=True):
    """What a node must not forget.

    Term, vote and the tombstone are durable before anything that depends on them is
    sent. The commit index is a hint: it is stored with the next write and may be old.
    """

    term: int = 0
    vote: int = 0
    commit: int = 0
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """The state at the index before the first entry of the log.

    `state` is the state machine folded up to `index`. The core never looks into it; if
    it is large, a shell may put a reference there and stream the bytes itself.
    """

    index: int = 0
    term: int = 0
    membership: Membership = field(default_factory=Membership)
    state: bytes = b""


@dataclass(frozen=True, slots=True)
class Mark:
    """What has to be known of entries that are not read at a start.

    Up to `index` the log is committed, durable here, and in the state machine, which is
    stored beside this.
    """

    index: int
    runs: tuple[tuple[int, int], ...]
    """First index and term of each run of entries of one term."""
    memberships: tuple[Membership, ...]
    """Those in the log up to there, in their order."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a disk holds when a node starts: base, then log, then hard state.

    Entries come in order and may begin below the base; those are skipped. A node that
    has nothing stored yet starts with a base that has the first membership, or none.
    """

    base: Base = field(default_factory=Base)
    entries: Iterable[Entry] = ()
    hard_state: HardState = field(default_factory=HardState)
    mark: Mark | None = None
    """Where the entries begin, if that is behind the base."""
