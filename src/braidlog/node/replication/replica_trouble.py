"""What the operator is told of trouble: when it begins, and when it ends."""

from __future__ import annotations

import logging
from typing import Final

from braidlog.errors import LogError, LogFullError
from braidlog.logstream.replica import Replica

_log = logging.getLogger(__name__)

_NEXT: Final = (
    "appends to the stream wait. Trim or delete logs, or restart this "
    "node with a larger [limits] wal_bytes_max"
)


class ReplicaTrouble:
    """Logs each trouble of a replica once, not once an entry."""

    def __init__(self, replica: Replica) -> None:
        """Begin with nothing told."""
        self._replica = replica
        self.seen: tuple[str, str, LogError | None] = ("", "", None)
        """What was looked at last."""
        self._defect = ""
        self._refuses = False
        self._cramped = False

    def look(self, stream: int, trouble: tuple[str, str, LogError | None]) -> None:
        """Log what changed since the last look; `trouble` is that of its effects."""
        told = {"stream": stream}
        self.seen = defect, room, refused = trouble
        if defect != self._defect:
            self._defect = defect
            damage = {"event": "replica_damaged", "reason": defect, **told}
            whose = (
                "and it is the only replica"
                if self._replica.is_alone
                else "and the other replicas repair it"
            )
            msg = "the replica of stream %d is damaged, %s: %s"
            _log.error(msg, stream, whose, defect, extra=damage)
        if room and not self._cramped:
            msg = "the replica of stream %d waits for disk space: %s"
            _log.error(msg, stream, room, extra=told)
        self._cramped = bool(room)
        if (refused is not None) == self._refuses:
            return
        self._refuses = refused is not None
        if refused is None:
            msg = "the replica of stream %d stores records again"
            _log.info(msg, stream, extra=told)
        else:
            msg = "the replica of stream %d cannot store records: %s"
            _log.error(msg, stream, _words(refused), extra=told)


def _words(refused: LogError) -> str:
    if isinstance(refused, LogFullError):
        return f"{refused.message}; {_NEXT}"
    return str(refused)
