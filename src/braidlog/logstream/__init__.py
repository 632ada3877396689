"""One replica of a log stream, without input and output.

Here is what a replica does with each input, by its epoch and its role. Which replicas a
stream has is decided in `braidlog.metarepo`; disks and connections are those of
`braidlog.node`.
"""

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
