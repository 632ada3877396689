"""Trouble with connections: logged once when it begins, and once when it ends."""

from __future__ import annotations

import logging
from typing import Final

_TROUBLES_MAX: Final = 8
"""Told of one other side: the texts of errors may never be the same."""
_OTHERS_MAX: Final = 1024
"""Remembered; strangers may come from anywhere."""


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
