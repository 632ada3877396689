"""What the active host says of outcomes: digests, many in one record."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from braidlog.app.entries import Outcomes, pack
from braidlog.app.role import Role
from braidlog.app.source import CommandLog
from braidlog.errors import LogError, UnavailableError

__all__ = ["OUTCOMES", "Reporter"]

_LOGGER = logging.getLogger("braidlog")

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

    def report(self, role: Role, least: int) -> None:
        """Append one record, if there are so many digests for it."""
        if not role.active:
            return
        digests = role.shared.unlogged(self._logged, OUTCOMES)
        if len(digests) < least:
            return
        try:
            self._append(role, digests)
        except UnavailableError as error:
            # A full log: commands are what the room is for, and these come again.
            _LOGGER.warning("outcomes were not logged: %s", error)

    def report_all(self, role: Role, within_s: float) -> None:
        """Append all digests, but begin no record after ``within_s`` seconds.

        What is not logged is compared by nobody, and lost with the host.
        """
        if not role.active:
            return
        deadline, losses = self._clock() + within_s, self._losses
        digests = role.shared.unlogged(self._logged, _ALL)
        for at in range(0, len(digests), OUTCOMES):
            left = len(digests) - at
            if self._clock() >= deadline or self._losses != losses:
                _LOGGER.warning("the outcomes of %d commands were not logged", left)
                return
            try:
                self._append(role, digests[at : at + OUTCOMES])
            except LogError as error:
                _LOGGER.warning("%d outcomes were not logged: %s", left, error)
                return

    def _append(self, role: Role, digests: list[tuple[int, bytes]]) -> None:
        value = pack(Outcomes(role.claimed, digests))
        self._log.submit(value, None, self._lost)
        self._logged = digests[-1][0]

    def _lost(self, error: Exception) -> None:
        _LOGGER.warning("outcomes were not logged: %s", error)
        self._losses += 1
        self._logged = 0  # Those that the log has are not offered again.
