"""Replay from the directories of nodes that do not run any more.

A command is one record at one position, also if it touches several partitions. So it is
there as a whole wherever one valid directory has it, and there are no copies of it for
single partitions that could be missing. What can be missing is a position, in all
directories; there the two cuts differ.

=========== ==========================================================================
strict      ends in front of the first position that no valid directory has; is refused
            where damage is why, or where nothing proves that there is no more behind it
any-copy    goes on behind it: every command that one valid directory has is executed
=========== ==========================================================================

Damaged bytes are left out, as long as another directory has what they held. `found`
names them, with what no directory has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

from braidlog import _native
from braidlog.app.execution.record import RecordLike
from braidlog.app.log.source import LOG_NAME
from braidlog.errors import TrimmedError
from braidlog.node.raw import open_raw
from braidlog.storage.merge import Damage, Figures, OnHole

__all__ = ["Cut", "Lacks", "RawInput"]

Cut: TypeAlias = Literal["strict", "any-copy"]

_ON_HOLE: Final[dict[Cut, OnHole]] = {"strict": "stop", "any-copy": "skip"}


@dataclass(slots=True)
class Lacks:
    """What is missing of a log, each thing once."""

    damages: list[Damage] = field(default_factory=list)
    """Bytes that were left out, by file and offset."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Positions that no directory has, half-open."""
    notes: list[str] = field(default_factory=list)
    """What else may be missing, and why."""

    def add(self, figures: Figures) -> None:
        """Add what a reading found."""
        known = {(each.path, each.begin): at for at, each in enumerate(self.damages)}
        for damage in figures.damages:
            at = known.get((damage.path, damage.begin))
            if at is None:
                self.damages.append(damage)
            else:
                self.damages[at] = damage
        self.holes += [hole for hole in figures.holes if hole not in self.holes]
        said = [
            f"the end of stream {n} is damaged everywhere" for n in figures.unproven
        ]
        self.notes += [
            note for note in (*figures.notes, *said) if note not in self.notes
        ]


class RawInput:
    """A log in raw directories: those of a dead cluster that the fault log calls valid.

    Or the directory of an embedded log. They are locked while they are read. Copies are
    compared, and two that differ end it with both places named.
    """

    def __init__(
        self,
        directories: Sequence[str | Path],
        log: str = LOG_NAME,
        *,
        cut: Cut = "strict",
        order_bytes_max: int | None = None,
    ) -> None:
        """Name directories and log; nothing is opened before it is read."""
        self.name = f"{log} in {', '.join(map(str, directories))}"
        self.identity: Final = ""
        self.cut = cut
        self.gaps = cut == "any-copy"
        self.figures: Figures | None = None
        """What the last reading found: copies, holes, damage."""
        self.found: Final = Lacks()
        """What all readings found to be missing."""
        self._directories = list(directories)
        self._log = log
        self._order_bytes_max = order_bytes_max
        self._reading: Generator[RecordLike] | None = None

    def read(self, begin: int | None, end: int | None = None) -> Iterator[RecordLike]:
        """Read the records once, in order; ends an earlier reading.

        Raises:
            LockedError: a node runs on one of the directories.
            NotReadyError: a directory that may know more is missing; it is named.
            InvalidArgumentError: no choice of directories is safe.
            NotFoundError: no valid directory has the log.
            TrimmedError: it is read from its first record, which nobody has any more.
            CorruptionError: copies differ, or damage that no other directory makes up
                for.
        """
        self.close()
        self._reading = self._records(begin, end)
        return self._reading

    def _records(self, begin: int | None, end: int | None) -> Generator[RecordLike]:
        merge = open_raw(
            self._directories,
            self._log,
            begin=begin,
            on_hole=_ON_HOLE[self.cut],
            order_bytes_max=self._order_bytes_max,
        )
        found = False
        with contextlib.closing(merge):
            try:
                for rows in merge.encoded():
                    found = True
                    for row in rows:
                        if end is not None and row.position >= end:
                            return
                        last = row.first + row.count
                        if end is not None:
                            last = min(last, row.first + end - row.position)
                        yield from _native.Batch(row.batch).records(
                            row.position - row.first, row.first, last
                        )
                        if end is not None and row.position + row.count >= end:
                            return  # Whatever is behind it.
            finally:
                self.figures = merge.figures()
                self.found.add(self.figures)
        holes = self.figures.holes
        if begin == 1 and not found and holes and holes[0][1] < merge.end:
            # Not a hole where a log ends: without its first record it has no state.
            first = holes[0][1]
            msg = f"the log begins at {first} in these directories"
            raise TrimmedError(msg, first=first)

    def close(self) -> None:
        """Let go of the directories."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None
