"""What nodes of a group say to each other.

Every message names its sender and receiver, the sender's term, and the epoch of the
membership that the sender uses. Indexes count from 1; 0 means none.

What is made several times for each append is a `Struct`, here and in the other cores:
to make a frozen dataclass takes eight times as long.
"""

from __future__ import annotations

from msgspec import Struct

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


class Message(Struct, frozen=True):
    """What all messages have."""

    sender: int
    receiver: int
    term: int
    epoch: int


class PreVoteRequest(Message, frozen=True):
    """Ask whether an election in `term`, which is not begun, could be won."""

    last_index: int
    last_term: int


class PreVoteResponse(Message, frozen=True):
    """Answer; a grant repeats the term of the request, a refusal has the own term."""

    granted: bool


class VoteRequest(Message, frozen=True):
    """Ask for a vote. Leaves only when term, own vote and log are durable.

    Otherwise a node that crashed could stand again in the same term with a shorter log
    and count the votes that its longer log was given.
    """

    last_index: int
    last_term: int
    transfer: bool
    """The leader asked for this election: its lease does not stand in the way."""


class VoteResponse(Message, frozen=True):
    """Answer; leaves only when the vote is durable."""

    granted: bool


class Append(Message, frozen=True):
    """Entries behind the one at `prev_index`, and how far the log is committed."""

    prev_index: int
    prev_term: int
    commit: int
    entries: tuple[Entry, ...]


class AppendResponse(Message, frozen=True):
    """Answer to an append or a base.

    Accepted: the log equals the leader's up to `index`, durably. Rejected: it does not
    have the entry `index` that was asked for; `hint_index` is the last one that may
    match, and has the term `hint_term` here.
    """

    rejected: bool
    index: int
    hint_index: int
    hint_term: int


class Heartbeat(Message, frozen=True):
    """The leader is there; `round` numbers the question whether it still leads."""

    commit: int
    round: int


class HeartbeatResponse(Message, frozen=True):
    """The sender knows no later term; answers all rounds up to `round`."""

    round: int


class InstallBase(Message, frozen=True):
    """The base state, for a follower that needs entries the leader dropped."""

    base: Base


class ReadRequest(Message, frozen=True):
    """A follower asks from which index on it may answer a read.

    The number is the sender's, and is unique together with its incarnation: contexts
    of callers may repeat, also across a restart (etcd issue 20418).
    """

    incarnation: int
    number: int


class ReadResponse(Message, frozen=True):
    """The read index, or 0 if the sender cannot say."""

    incarnation: int
    number: int
    index: int


class TimeoutNow(Message, frozen=True):
    """The leader asks the receiver to stand for election at once."""


class Removed(Message, frozen=True):
    """The receiver was removed from the group by a committed change."""
