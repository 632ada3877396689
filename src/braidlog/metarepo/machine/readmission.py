"""A node whose directory is lost comes back with an empty one and its old id.

*Theory of operation.* The directory held a vote in the metadata repository, and records
that were acknowledged because it had them. So the id comes back in steps. While it is
`readmitting` nothing that comes under its id is heard, and as a node that is dead it is
listed as failed and dropped from all streams; the leader ends its vote. When nothing
relies any more on what the lost directory promised, `AdmitNode` lets the next directory
that registers have the id. It begins as a learner without replicas.

*Invariants.* An identity that was given up never counts again. A node is admitted only
when no stream names it and it is listed as failed; the leader sees to the vote. The
demotion is committed by then: whoever lacks it lacks an entry that a majority without
this node has, so the vote that the new directory might give could elect nobody.
"""

from __future__ import annotations

from braidlog.errors import InvalidArgumentError, NotReadyError
from braidlog.metarepo.machine import shards, tables
from braidlog.metarepo.machine.nodes import require_node
from braidlog.metarepo.machine.state import State
from braidlog.wire.commands import AdmitNode, ReadmitNode
from braidlog.wire.results import Done


def readmit(state: State, index: int, command: ReadmitNode) -> Done:
    """Apply `ReadmitNode`."""
    node = require_node(state, command.node)
    if node.readmitting:
        return Done()
    if not node.identity:
        raise InvalidArgumentError(
            f"node {node.node} was given up already and waits for an empty "
            "directory: start it"
        )
    alone = [
        stream.stream
        for stream in state.streams.values()
        if set(stream.holders) == {node.node}
    ]
    if alone:
        raise InvalidArgumentError(
            f"only node {node.node} holds all records of {len(alone)} streams "
            f"(stream {alone[0]} for example): delete their logs first"
        )
    sole_shards = [
        shard.stream for shard in state.shards.values() if shard.nodes == (node.node,)
    ]
    if sole_shards:
        raise InvalidArgumentError(
            f"only node {node.node} is a member of {len(sole_shards)} shards (stream "
            f"{sole_shards[0]} for example): delete their logs first"
        )
    sole = [
        table.name
        for table in state.tables.values()
        if table.joined == (node.node,) and state.logs[table.log].trim > table.begin
    ]
    if sole:
        raise InvalidArgumentError(
            f"only node {node.node} has all of table {sole[0]!r}, and the log does not "
            "reach back to where the table began: rebuild or drop the table first"
        )
    node.readmitting = True
    shards.give_up(state, node.node)
    tables.leave(state, index, node.node)
    if command.votes:
        # It votes again when it has copied the repository.
        node.voter = True
    state.revision = index
    return Done()


def is_free(state: State, number: int) -> bool:
    """Tell whether nothing but its vote may rely on what a node once held."""
    known = state.faults
    listed = known is None or number not in known.members or number in known.failed
    used = any(
        number in (*stream.replicas, *stream.learners, *stream.holders)
        for stream in state.streams.values()
    )
    return listed and not used and not tables.kept_by(state, number)


def admit(state: State, index: int, command: AdmitNode) -> Done:
    """Apply `AdmitNode`."""
    node = require_node(state, command.node)
    if not node.readmitting:
        return Done()
    if not is_free(state, node.node):
        raise NotReadyError(f"node {node.node} still has replicas or a vote")
    node.readmitting = False
    node.former = (*node.former, node.identity)
    # The starts of the next directory count from 1 again.
    node.identity, node.incarnation = b"", 0
    state.revision = index
    return Done()
