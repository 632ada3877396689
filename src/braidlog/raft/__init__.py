"""Raft without input and output: a majority of nodes agrees on one log.

`RaftNode` takes messages, ticks and requests and returns `Effects`; a shell stores,
sends and applies them. Sources: Ongaro and Ousterhout, "In Search of an Understandable
Consensus Algorithm" (cited as Raft); Ongaro, "Consensus: Bridging Theory and Practice"
(cited as Ongaro); etcd raft, for pre-vote with check-quorum, flow control and
asynchronous storage writes. `docs/design/0005-raft-core.md` has the decisions.
"""

from braidlog.raft.config import RaftConfig
from braidlog.raft.effects import (
    Effects,
    ReadFailed,
    ReadState,
    Role,
    SoftState,
    Write,
)
from braidlog.raft.errors import (
    ChangeRefusedError,
    MembershipError,
    NotLeaderError,
    RaftInvariantError,
    RaftMessageError,
    ReadsFullError,
    RemovedNodeError,
    TailFullError,
    TransferringError,
)
from braidlog.raft.log import Frame, LogReader
from braidlog.raft.membership import Change, Membership
from braidlog.raft.messages import Message
from braidlog.raft.node import RaftNode, Span
from braidlog.raft.state import Base, Entry, EntryKind, HardState, Mark, Stored

__all__ = [
    "Base",
    "Change",
    "ChangeRefusedError",
    "Effects",
    "Entry",
    "EntryKind",
    "Frame",
    "HardState",
    "LogReader",
    "Mark",
    "Membership",
    "MembershipError",
    "Message",
    "NotLeaderError",
    "RaftConfig",
    "RaftInvariantError",
    "RaftMessageError",
    "RaftNode",
    "ReadFailed",
    "ReadState",
    "ReadsFullError",
    "RemovedNodeError",
    "Role",
    "SoftState",
    "Span",
    "Stored",
    "TailFullError",
    "TransferringError",
    "Write",
]
