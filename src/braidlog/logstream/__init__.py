"""One replica of a log stream, without input and output."""

from braidlog.logstream.effects import Limits, ReplicaEffects, Request
from braidlog.logstream.errors import ReplicaInvariantError
from braidlog.logstream.replica import Replica
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import (
    Batch,
    CommitContext,
    Placed,
    StoredBatch,
    StoredStream,
    StreamStorage,
)

__all__ = [
    "Batch",
    "CommitContext",
    "Limits",
    "Placed",
    "Replica",
    "ReplicaEffects",
    "ReplicaInvariantError",
    "ReplicaState",
    "Request",
    "StoredBatch",
    "StoredStream",
    "StreamStorage",
]
