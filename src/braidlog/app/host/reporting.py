"""What the active host says of outcomes: digests, many in one record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from braidlog.app.execution.entries import Outcomes, pack
from braidlog.app.host.role import Role
from braidlog.app.log.source import CommandLog
from braidlog.errors import TooLargeError, UnavailableError

_log = logging.getLogger(__name__)

OUTCOMES: Final = 1024
"""Digests in one record."""
_ALL: Final = 1 << 30


class Reporter:
    """Appends the digests that the log does not have. Used by the thread of a host."""

    def __init__(self, log: CommandLog, clock: Callable[[], float]) -> None:
        """Report to a log; nothing is reported yet."""
        self._log = log
        self._clock = clock
        self._logged = 0
        self._losses = 0
        # Fewer where the log takes no record of that size.
        self._most = OUTCOMES

    def report(self, role: Role, least: int) -> None:
        """Append digests as of one full record, if there are at least so many."""
        if not role.active:
            return
        digests = role.shared.unlogged(self._logged, OUTCOMES)
        if len(digests) >= least:
            self._append(role, digests, float("inf"))

    def report_all(self, role: Role, within_s: float) -> None:
        """Append all digests, but begin no record after ``within_s`` seconds.

        What is not logged is compared by nobody, and lost with the host.
        """
        if not role.active:
            return
        digests = role.shared.unlogged(self._logged, _ALL)
        left = self._append(role, digests, self._clock() + within_s)
        if left:
            _log.warning(
                (
                    "outcomes of %d commands were not logged in time; replays and "
                    "other hosts cannot compare them"
                ),
                left,
            )

    def _append(
        self, role: Role, digests: list[tuple[int, bytes]], deadline: float
    ) -> int:
        """Append digests in as many records as it takes; return how many are left."""
        losses = self._losses
        while digests and self._losses == losses and self._clock() < deadline:
            some = digests[: self._most]
            try:
                value = pack(Outcomes(role.claimed, some))
                self._log.submit(value, None, self._lost)
            except TooLargeError as error:
                if self._most == 1:
                    raise
                self._shrink(error)
            except UnavailableError as error:
                # A full log: commands are what the room is for, and these come again.
                _log.warning("outcomes were not logged: %s", error)
                break
            else:
                self._logged = some[-1][0]
                digests = digests[len(some) :]
        return len(digests)

    def _lost(self, error: Exception) -> None:
        _log.warning("outcomes were not logged: %s", error)
        self._shrink(error)
        self._losses += 1
        self._logged = 0  # Those that the log has are not offered again.

    def _shrink(self, error: Exception) -> None:
        if isinstance(error, TooLargeError):
            self._most = max(1, self._most // 2)
