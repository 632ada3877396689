"""Which host was the active one at a position, and which ABORT entries count. Pure.

*Theory of operation.* A HOST entry with a greater epoch than those before it begins a
term. What an active host writes carries the epoch of its term: it counts if no later
term had begun at its place in the log. So a host that was replaced and does not know it
yet can do no harm, and everybody who reads the log decides in the same way.

*Invariant.* Terms have rising positions and rising epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from braidlog.app.execution.entries import AbortEntry, Entry, Host

# Terms that a state keeps. Databases of one state are at most a round of the executor
# apart, so nobody asks about a position that lies so many terms back.
_KEPT: Final = 16


class Term(NamedTuple):
    """A host is the active one from a position on."""

    position: int
    """Of its HOST entry."""
    epoch: int
    host: bytes


_NOBODY: Final = Term(0, 0, b"")


class Terms:
    """Who was active when, the newest last."""

    def __init__(self, stored: Iterable[Sequence[Any]] = ()) -> None:
        """Begin with what `stored` gave."""
        self._terms = [Term(*each) for each in stored]

    @property
    def last(self) -> Term:
        """The term that no other one follows; of epoch 0 if there is none."""
        return self._terms[-1] if self._terms else _NOBODY

    def add(self, position: int, entry: Host) -> bool:
        """Take a HOST entry; whether it begins a term. Entries come in their order."""
        last = self.last
        if position <= last.position or entry.epoch <= last.epoch:
            return False
        self._terms = [
            *self._terms[1 - _KEPT :],
            Term(position, entry.epoch, entry.host),
        ]
        return True

    def at(self, position: int) -> int:
        """Return the epoch in front of a position; 0 if it is not known any more."""
        terms = reversed(self._terms)
        return next((term.epoch for term in terms if term.position < position), 0)

    def counts(self, position: int, entry: AbortEntry) -> bool:
        """Whether the ABORT entry at ``position`` is that of the active host.

        One without an epoch counts: it is of a version that did not ask.
        """
        return not entry.epoch or entry.epoch >= self.at(position)

    def stored(self) -> list[list[Any]]:
        """Return what the next `Terms` begins with."""
        return [list(term) for term in self._terms]


class Aborts:
    """The HOST and ABORT entries of a stretch of a log."""

    def __init__(self) -> None:
        """Begin with none."""
        self._hosts: list[tuple[int, Host]] = []
        self._aborts: dict[int, list[tuple[int, AbortEntry]]] = {}

    def add(self, position: int, entry: Entry) -> None:
        """Take the entry at ``position``; entries come in their order."""
        if isinstance(entry, Host):
            self._hosts.append((position, entry))
        elif isinstance(entry, AbortEntry):
            self._aborts.setdefault(entry.position, []).append((position, entry))

    def terms(self, before: Terms) -> Terms:
        """Return the terms up to the end of the stretch, given those ``before`` it.

        Those may reach into the stretch.
        """
        terms = Terms(before.stored())
        for position, entry in self._hosts:
            terms.add(position, entry)
        return terms

    def find(self, position: int, before: Terms) -> AbortEntry | None:
        """Return the first entry that counts of those that give up ``position``."""
        found = self._aborts.get(position)
        if not found:
            return None
        terms = self.terms(before)
        return next((entry for at, entry in found if terms.counts(at, entry)), None)
