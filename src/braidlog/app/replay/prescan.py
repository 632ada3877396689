"""What replay has to know of the log ahead, before it executes anything.

One pass over the entries, which runs no code of theirs: which code is needed, which
commands were given up, which partitions belong together, in which environment outcomes
were made. So what cannot be replayed is refused while nothing has happened yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from braidlog.app.errors import ApplicationMismatchError, UnknownProcedureError
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import (
    AbortEntry,
    Catalog,
    Command,
    Create,
    Effect,
    Entry,
    Host,
    Resize,
    unpack,
)
from braidlog.app.execution.epochs import Aborts, Terms
from braidlog.app.execution.record import RecordLike


@dataclass(slots=True)
class Survey:
    """What a stretch of the log holds."""

    application: ApplicationDefinition
    first: int = 0
    position: int = 0
    """The last record."""
    time: int = 0
    """Its timestamp, in microseconds."""
    records: int = 0
    commands: int = 0
    log_bytes: int = 0
    """Of the values of records."""
    missing: int = 0
    """Positions that nobody has."""
    aborts: Aborts = field(default_factory=Aborts)
    environments: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """Position of each catalog, and the environment that it was written in."""
    partitions: int = 0
    """How many there are where the stretch begins; those of CREATE, if it has that."""
    resizes: list[int] = field(default_factory=list)
    """Positions of the entries that change how many partitions there are."""
    watch: Callable[[int, Entry], None] | None = None
    """Sees each entry with its position: nobody has to decode it again."""
    _code: dict[tuple[str, bytes], int] = field(default_factory=dict)
    _together: set[tuple[int, ...]] = field(default_factory=set)
    _all: bool = False

    def __post_init__(self) -> None:
        """Take the number of the program, until the log says its own."""
        self.partitions = self.partitions or self.application.partitions

    def add(
        self, records: Iterable[RecordLike], *, time_max: int | None = None
    ) -> bool:
        """Look at records in their order; False at the first after ``time_max``.

        Raises:
            ApplicationMismatchError: the log is that of another application.
            CorruptionError: a record is no entry of a command log.
        """
        for record in records:
            if time_max is not None and record.timestamp > time_max:
                return False
            value = record.value
            if not self.first:
                self.first = record.position
            elif record.position != self.position + 1:
                self.missing += record.position - self.position - 1
            self.position = record.position
            self.time = record.timestamp
            self.records += 1
            self.log_bytes += len(value or b"")
            self._look(record.position, value)
        return True

    def _look(self, position: int, value: bytes | None) -> None:
        entry = unpack(value, position)
        if self.watch is not None:
            self.watch(position, entry)
        if type(entry) is Command or type(entry) is Effect:
            self.commands += 1
            if type(entry) is Command:
                self._code.setdefault((entry.procedure, entry.content), position)
            if entry.partitions is None:
                self._all = True
            elif len(entry.partitions) > 1:
                self._together.add(tuple(entry.partitions))
        elif isinstance(entry, AbortEntry | Host):
            self.aborts.add(position, entry)
        elif isinstance(entry, Catalog):
            self.environments.append((position, entry.fingerprint))
        elif isinstance(entry, Create):
            self._check(entry)
            self.partitions = entry.partitions
        elif isinstance(entry, Resize):
            self.resizes.append(position)
            self._all = True  # It moves rows from each partition to any other.

    def _check(self, entry: Create) -> None:
        mine = self.application
        if entry.name != mine.name:
            raise ApplicationMismatchError(
                f"the log belongs to application {entry.name!r}, not to {mine.name!r}"
            )

    def given_up(self, position: int, before: Terms | None = None) -> str | None:
        """Return why a command was given up; None if it was not.

        ``before`` says who was active before the stretch.
        """
        found = self.aborts.find(position, before or Terms())
        return None if found is None else found.reason

    def check_code(self) -> None:
        """Check that the program has the code of every command.

        Raises:
            UnknownProcedureError: it has not; all that is missing is named.
        """
        lacking = [
            f"{name!r} with content hash {content.hex()} (first at {position})"
            for (name, content), position in self._code.items()
            if self.application.logged(name, content) is None
        ]
        if lacking:
            msg = "the log has commands whose code is not here: " + ", ".join(lacking)
            raise UnknownProcedureError(msg)

    # -- partitions --------------------------------------------------------------

    def groups(self) -> list[frozenset[int]]:
        """Return the smallest sets of partitions that no command reaches out of."""
        everything = range(self.partitions)
        if self._all:
            return [frozenset(everything)]
        group_of = {number: {number} for number in everything}
        for touched in self._together:
            merged: set[int] = set().union(*(group_of[number] for number in touched))
            for number in merged:
                group_of[number] = merged
        distinct = {id(group): group for group in group_of.values()}
        return sorted((frozenset(g) for g in distinct.values()), key=min)

    def closed(self, partitions: Collection[int]) -> frozenset[int]:
        """Return these partitions and all that commands on them touch as well."""
        wanted = set(partitions)
        reached = [group for group in self.groups() if wanted & group]
        return frozenset().union(*reached)


def groups_of(groups: Sequence[frozenset[int]], processes: int) -> list[frozenset[int]]:
    """Spread groups of partitions over processes, the largest first."""
    spread: list[set[int]] = [set() for _ in range(min(processes, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(spread, key=len).update(group)
    return [frozenset(each) for each in spread]
