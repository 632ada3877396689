"""Cuts of one log: all nodes apply the same ones, and they add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.errors import ViolationError

__all__ = ["CutChecker", "CutRun"]


@dataclass(frozen=True, slots=True)
class CutRun:
    """What one cut gives to one stream: `length` positions from `glsn` on."""

    stream: int
    llsn: int
    glsn: int
    length: int


@dataclass(frozen=True, slots=True)
class _Cut:
    version: int
    high: int
    runs: tuple[CutRun, ...]


class CutChecker:
    """Checker of the cuts of one log.

    Versions are dense and begin at 1, a cut is the same wherever it is seen, it is not
    empty, its runs lie side by side behind the high watermark before it, their lengths
    sum to the difference of the watermarks, and the LLSNs of a stream go on where they
    were.
    """

    def __init__(self) -> None:
        """Begin with no cut."""
        self._cuts: dict[int, _Cut] = {}
        self._checked = 0
        self._high = 0
        self._ends: dict[int, int] = {}
        self._applied: dict[str, int] = {}

    def seen(self, node: str, version: int, high: int, runs: Sequence[CutRun]) -> None:
        """Note that a node learnt of a cut, in any order and any number of times."""
        cut = _Cut(version, high, tuple(sorted(runs, key=lambda run: run.glsn)))
        known = self._cuts.setdefault(version, cut)
        if known != cut:
            raise ViolationError(f"{node} has {cut}, others have {known}")
        while self._checked + 1 in self._cuts:
            self._check(self._cuts[self._checked + 1])
            self._checked += 1

    def applied(self, node: str, version: int) -> None:
        """Note that a node's repository applied a cut: each one, in order."""
        before = self._applied.get(node)
        if before is not None and version != before + 1:
            raise ViolationError(f"{node} applies cut {version} behind {before}")
        if version not in self._cuts:
            raise ViolationError(f"{node} applies cut {version}, which nobody saw")
        self._applied[node] = version

    def restarted(self, node: str, version: int) -> None:
        """Note that a node begins again, behind a snapshot with this version."""
        self._applied[node] = version

    def finish(self) -> int:
        """Return the last version; all before it have to be known."""
        if len(self._cuts) != self._checked:
            missing = self._checked + 1
            raise ViolationError(f"cut {missing} is missing before {max(self._cuts)}")
        return self._checked

    def _check(self, cut: _Cut) -> None:
        if not cut.runs or any(run.length < 1 for run in cut.runs):
            raise ViolationError(f"{cut} has a run of nothing")
        expected = self._high + 1
        for run in cut.runs:
            if run.glsn != expected:
                raise ViolationError(f"{cut}: a run is not at {expected}")
            llsn = self._ends.get(run.stream, 0) + 1
            if run.llsn != llsn:
                text = f"stream {run.stream} goes on at {llsn}"
                raise ViolationError(f"{cut}: {text}")
            expected += run.length
            self._ends[run.stream] = run.llsn + run.length - 1
        if cut.high != expected - 1:
            raise ViolationError(f"{cut}: the lengths sum to {expected - 1}")
        self._high = cut.high
