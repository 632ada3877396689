"""What the operator is told of trouble: when it begins, and when it ends."""

from __future__ import annotations

import logging
from typing import Final

from braidlog.errors import LogError, LogFullError
from braidlog.logstream.replica import Replica

__all__ = ["Complaints", "Connections"]

_log = logging.getLogger(__name__)

_NEXT: Final = (
    "appends to the stream wait: trim or delete logs, or start this node with a larger"
    " wal_bytes_max"
)


_TROUBLES_MAX: Final = 8
"""Told of one other side: the texts of errors may never be the same."""
_OTHERS_MAX: Final = 1024
"""Remembered; strangers may come from anywhere."""


class Complaints:
    """Logs each trouble of a replica once, not once an entry."""

    def __init__(self, replica: Replica) -> None:
        """Begin with nothing told."""
        self._replica = replica
        self._defect = ""
        self._refuses = False
        self._cramped = False

    def look(self, stream: int) -> None:
        """Log what changed since the last look."""
        told = {"stream": stream}
        if (defect := self._replica.defect) != self._defect:
            self._defect = defect
            damage = {"event": "replica_damaged", "reason": defect, **told}
            whose = (
                "it is the only one" if self._replica.is_alone else "others repair it"
            )
            msg = f"the replica of stream %d is damaged, {whose}: %s"
            _log.error(msg, stream, defect, extra=damage)
        room = self._replica.lacks_room
        if room and not self._cramped:
            msg = "the replica of stream %d waits for room: %s"
            _log.error(msg, stream, room, extra=told)
        self._cramped = bool(room)
        refused = self._replica.refused
        if (refused is not None) == self._refuses:
            return
        self._refuses = refused is not None
        if refused is None:
            msg = "the replica of stream %d takes entries again"
            _log.info(msg, stream, extra=told)
        else:
            msg = "the replica of stream %d takes no entries: %s"
            _log.error(msg, stream, _words(refused), extra=told)


class Connections:
    """Logs each trouble of connections once, until one works: attempts are many."""

    def __init__(self, log: logging.Logger) -> None:
        """Begin with nothing told."""
        self._log = log
        self._told: dict[str, set[str]] = {}

    def fails(self, other: str, trouble: str) -> None:
        """Log what is wrong between this node and another side, if it is news."""
        told = self._told.setdefault(other, set())
        news = trouble not in told and len(told) < _TROUBLES_MAX
        self._log.log(
            logging.WARNING if news else logging.DEBUG, "%s: %s", other, trouble
        )
        if news:
            told.add(trouble)
        if len(self._told) > _OTHERS_MAX:
            del self._told[next(iter(self._told))]

    def works(self, other: str) -> None:
        """Log that it does again, if it did not; the next trouble is news."""
        if self._told.pop(other, None):
            self._log.info("%s: the connection works again", other)


def _words(refused: LogError) -> str:
    if isinstance(refused, LogFullError):
        return f"{refused.message}; {_NEXT}"
    return str(refused)
