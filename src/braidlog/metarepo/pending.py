"""Requests that wait: for an entry, for a read, for news, for a seal.

*Invariants.* Every request is answered once: with a result, with an error of which the
outcome is certain because nothing was logged, or with one of which it is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.errors import LogError
from braidlog.raft import NotLeaderError


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request came to: an `Executed` payload or `Metadata`, or an error."""

    request: int
    index: int = 0
    payload: bytes = b""
    """An encoded result; empty for metadata, which the shell takes of `metadata`."""
    error: LogError | None = None


@dataclass(slots=True)
class News:
    """Somebody who wants to know when the metadata is newer."""

    request: int
    known: int
    deadline: float
    index: int = 0
    """Index that has to be applied first; -1 while it is not known."""


@dataclass(frozen=True, slots=True)
class Sealing:
    """A seal that is decided, and not yet kept by all live replicas."""

    answer: Answer
    stream: int
    epoch: int
    deadline: float


def unknown_outcome(leader: int, term: int) -> NotLeaderError:
    """Return the error for a command that may or may not be executed."""
    msg = "the leader changed while the command ran: it may have been executed or not"
    error = NotLeaderError(msg, leader=leader, term=term)
    error.outcome = "unknown"
    return error
