"""What nodes of a group say to each other.

Every message names its sender and receiver, the sender's term, and the epoch of the
membership that the sender uses. Indexes count from 1; 0 means none.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.raft.state import Base, Entry

__all__ = [
    "Append",
    "AppendResponse",
    "Heartbeat",
    "HeartbeatResponse",
    "InstallBase",
    "Message",
    "PreVoteRequest",
    "PreVoteResponse",
    "ReadRequest",
    "ReadResponse",
    "Removed",
    "TimeoutNow",
    "VoteRequest",
    "VoteResponse",
]


@dataclass(frozen=True, slots=True)
class Message:
    """What all messages have."""

    sender: int
    receiver: int
    term: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PreVoteRequest(Message):
    """Ask whether an election in `term`, which is not begun, could be won."""

    last_index: int
    last_term: int


@dataclass(frozen=True, slots=True)
class PreVoteResponse(Message):
    """Answer; a grant repeats the term of the request, a refusal has the own term."""

    granted: bool


@dataclass(frozen=True, slots=True)
class VoteRequest(Message):
    """Ask for a vote. Leaves only when term, own vote and log are durable.

    Otherwise a node that crashed could stand again in the same term with a shorter log
    and count the votes that its longer log was given.
    """

    last_index: int
    last_term: int
    transfer: bool
    """The leader asked for this election: its lease does not stand in the way."""


@dataclass(frozen=True, slots=True)
class VoteResponse(Message):
    """Answer; leaves only when the vote is durable."""

    granted: bool


@dataclass(frozen=True, slots=True)
class Append(Message):
    """Entries behind the one at `prev_index`, and how far the log is committed."""

    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class AppendResponse(Message):
    """Answer to an append or a base.

    Accepted: the log equals the leader's up to `index`, durably. Rejected: it does not
    have the entry `index` that was asked for; `hint_index` is the last one that may
    match, and has the term `hint_term` here.
    """

    rejected: bool
    index: int
    hint_index: int
    hint_term: int


@dataclass(frozen=True, slots=True)
class Heartbeat(Message):
    """The leader is there; `round` numbers the question whether it still leads."""

    commit: int
    round: int


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Message):
    """The sender knows no later term; answers all rounds up to `round`."""

    round: int


@dataclass(frozen=True, slots=True)
class InstallBase(Message):
    """The base state, for a follower that needs entries the leader dropped."""

    base: Base


@dataclass(frozen=True, slots=True)
class ReadRequest(Message):
    """A follower asks from which index on it may answer a read.

    The number is the sender's, and is unique together with its incarnation: contexts
    of callers may repeat, also across a restart (etcd issue 20418).
    """

    incarnation: int
    number: int


@dataclass(frozen=True, slots=True)
class ReadResponse(Message):
    """The read index, or 0 if the sender cannot say."""

    incarnation: int
    number: int
    index: int


@dataclass(frozen=True, slots=True)
class TimeoutNow(Message):
    """The leader asks the receiver to stand for election at once."""


@dataclass(frozen=True, slots=True)
class Removed(Message):
    """The receiver was removed from the group by a committed change."""
