"""A ledger over a log: read it up to its end, append to it, keep it small.

Works over whatever has the calls of `braidlog.Log` that it needs: logs of a directory
or of a cluster (`braidlog.connect`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any, Final, Protocol

from braidlog.errors import (
    AlreadyExistsError,
    CorruptionError,
    NotReadyError,
    TrimmedError,
)
from braidlog.spark.sink.ledger.entries import Entry, Summary, decode, encode, key_of
from braidlog.spark.sink.ledger.state import LedgerState

SUMMARY_EVERY: Final = 256
"""Entries after which what they come to is written down, and they are trimmed: reading
a ledger anew takes some milliseconds then, however old it is."""

_SUFFIX: Final = ".ledger"
_ATTEMPTS: Final = 8


class LedgerLog(Protocol):
    """What a ledger needs of its log."""

    @property
    def name(self) -> str:
        """Name of the log."""

    @property
    def first(self) -> int:
        """First position that can be read."""

    def append(self, value: bytes, *, key: bytes | None = None) -> int:
        """Append a record; durable on return."""

    def read(self, start: int | None = None) -> Iterable[Any]:
        """Iterate over the records from a position up to the end as it is now."""

    def trim(self, before: int) -> int:
        """Let records go."""


def ledger_name(log: str) -> str:
    """Return the name of a log's ledger."""
    return log + _SUFFIX


def open_ledger(node: Any, log: str) -> Ledger:
    """Return the ledger of a log of a node or client, creating it if there is none.

    Raises:
        NotFoundError: there is no log of that name.
        ReadOnlyError: there is no ledger, and the node was opened read-only.
    """
    node.log(log)
    name = ledger_name(log)
    if name not in node.logs():
        with contextlib.suppress(AlreadyExistsError):  # Another driver was faster.
            node.create_log(name)
    return Ledger(node.log(name))


class Ledger:
    """The ledger of a log. Not safe to use from many threads."""

    def __init__(self, log: LedgerLog, *, summary_every: int = SUMMARY_EVERY) -> None:
        """Bind to the log that holds the entries; see `open_ledger`."""
        self._log = log
        self._state = LedgerState()
        self._summary_every = summary_every
        self._summary_at = 0

    def read(self) -> LedgerState:
        """Return what has been decided, by all entries that are durable now.

        It is this ledger's own: the next `read` brings the same object up to date.

        Raises:
            CorruptionError: what the log holds are not the entries of a ledger.
            NewerFormatError: a newer version wrote one.
        """
        for _ in range(_ATTEMPTS):
            try:
                self._catch_up()
            except TrimmedError:
                # Another driver has written a summary, and trimmed what came next here.
                self._state = LedgerState()
            else:
                return self._state
        raise NotReadyError(
            f"the ledger {self._log.name!r} is trimmed faster than this "
            "process can read it: run the batch again"
        )

    def append(self, entry: Entry) -> int:
        """Append an entry and return its position; durable on return.

        Whether it counts is seen by reading: another may have come first.
        """
        return self._log.append(encode(entry), key=key_of(entry))

    def tidy(self) -> bool:
        """Write a summary and trim what is before it, if there is enough to trim.

        Any driver may do this at any time. Returns whether something was trimmed.
        """
        self.read()
        entries = self._state.position - max(self._summary_at, self._log.first)
        if entries < self._summary_every:
            return False
        summary = self._state.summary()
        self.append(summary)
        # Others may have appended before the summary came in: their entries stay.
        self._log.trim(summary.as_of)
        return True

    def _catch_up(self) -> None:
        state = self._state
        if state.position == 1 and self._log.first > 1:
            state = self._from_summary()
        for record in self._log.read(state.position):
            entry = decode(record.value)
            if isinstance(entry, Summary):
                self._summary_at = max(self._summary_at, entry.as_of)
            state.apply(record.position, entry)
        self._state = state

    def _from_summary(self) -> LedgerState:
        first = self._log.first
        for record in self._log.read(first):
            entry = decode(record.value)
            # An older one says nothing of the entries between its end and `first`.
            if isinstance(entry, Summary) and entry.as_of >= first:
                return LedgerState.of(entry)
        raise CorruptionError(
            f"the ledger {self._log.name!r} was trimmed to {first}, and no "
            "summary covers what was trimmed"
        )
