"""Commands about nodes. Each checks first and changes the state then."""

from __future__ import annotations

from braidlog.errors import (
    AlreadyExistsError,
    FencedError,
    InvalidArgumentError,
    NodeIdentityError,
    NotFoundError,
    TooLargeError,
)
from braidlog.faultlog.configuration import MEMBERS_MAX
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.state import NAME_BYTES_MAX, NODES_MAX, NodeState, State
from braidlog.wire.commands import DrainNode, RegisterNode, RemoveNode, SetVoter
from braidlog.wire.results import Done


def require_node(state: State, node: int) -> NodeState:
    """Return a node that must be known.

    Raises:
        NotFoundError: it is not.
    """
    found = state.nodes.get(node)
    if found is None:
        raise NotFoundError(f"node {node} is not part of the cluster")
    return found


def register(state: State, index: int, command: RegisterNode) -> Done:
    """Apply `RegisterNode`."""
    node, address = command.node, command.address
    if node < 1 or command.incarnation < 1:
        raise InvalidArgumentError(
            f"node id {node} and incarnation {command.incarnation} must both be "
            "at least 1"
        )
    if not address or len(address.encode()) > NAME_BYTES_MAX:
        msg = f"the address of a node has {len(address)} characters, which is too long"
        raise InvalidArgumentError(msg)
    if node in state.removed:
        raise FencedError(
            f"node {node} was removed from the cluster, and node ids are never "
            "used again: start it with a new id and an empty directory"
        )
    known = state.nodes.get(node)
    if known is None and len(state.nodes) >= NODES_MAX:
        msg = f"the cluster has {NODES_MAX} nodes, the maximum"
        raise TooLargeError(msg, limit=NODES_MAX)
    if known is None and faults.is_full(state, node):
        msg = f"the cluster has {MEMBERS_MAX} members, the maximum"
        raise TooLargeError(msg, limit=MEMBERS_MAX)
    if known is not None:
        require_identity(known, command.identity)
    if known and known.incarnation > command.incarnation:
        raise FencedError(
            f"a newer start of node {node} is registered (incarnation "
            f"{known.incarnation})"
        )
    if any(e.address == address and e.node != node for e in state.nodes.values()):
        raise AlreadyExistsError(f"another node is registered at {address}")
    if known is None:
        known = NodeState(node, address, command.incarnation)
        state.nodes[node] = known
        known.identity, known.bound = command.identity, index
        known.features = command.features
        state.revision = index
        return Done()
    if known.identity != command.identity:
        known.identity, known.bound = command.identity, index
        state.revision = index
    if (known.address, known.incarnation) != (address, command.incarnation):
        known.address, known.incarnation = address, command.incarnation
        state.revision = index
    if known.features != command.features:
        known.features = command.features
        state.revision = index
    return Done()


def require_identity(known: NodeState, identity: bytes) -> None:
    """Refuse a directory that is not the one the node is known by.

    Raises:
        NodeIdentityError: it is another one, or one that was given up.
    """
    node, given = known.node, identity.hex()
    if known.readmitting:
        what = (
            f"node {node} is being readmitted, but the cluster still knows it "
            "by another directory"
        )
    elif identity and identity in known.former:
        what = f"the directory of node {node} was given up for good"
    elif known.identity not in (b"", identity):
        what = f"the cluster knows node {node} by another directory"
    else:
        return
    theirs = known.identity.hex()
    msg = (
        f"{what}: the identity given is {given or 'none'}, the known one is "
        f"{theirs or 'none'}"
    )
    raise NodeIdentityError(msg, node=node, given=given, known=theirs)


def drain(state: State, index: int, command: DrainNode) -> Done:
    """Apply `DrainNode`."""
    node = require_node(state, command.node)
    if node.draining != command.draining:
        node.draining = command.draining
        state.revision = index
    return Done()


def remove(state: State, index: int, command: RemoveNode) -> Done:
    """Apply `RemoveNode`."""
    node = command.node
    if node in state.removed:
        return Done()
    if node not in state.nodes and faults.is_listed(state, node):
        # Of a cluster before a rescue, in which it did not go on.
        faults.forget(state, node)
        state.removed = tuple(sorted({*state.removed, node}))
        state.revision = index
        return Done()
    found = require_node(state, node)
    used = [
        stream.stream
        for stream in state.streams.values()
        if node in stream.replicas or node in stream.learners
    ]
    if used:
        raise InvalidArgumentError(
            f"node {node} still has replicas of {len(used)} streams (stream "
            f"{used[0]} for example): drain it first with `braidlog node drain`"
        )
    if mine := [each for each in state.shards.values() if node in each.nodes]:
        raise InvalidArgumentError(
            f"node {node} is still a member of {len(mine)} shards (stream "
            f"{mine[0].stream} for example): drain it first with `braidlog node drain`"
        )
    kept = [each for each in state.tables.values() if node in each.hosts]
    if kept:
        raise InvalidArgumentError(
            f"node {node} still keeps {len(kept)} tables (table {kept[0].name!r} for "
            "example): drain it first with `braidlog node drain`"
        )
    if found.voter:
        raise InvalidArgumentError(
            f"node {node} is a voter of the metadata repository: end that first "
            "with `braidlog node voter --off`"
        )
    faults.forget(state, node)
    del state.nodes[node]
    state.removed = tuple(sorted({*state.removed, node}))
    state.revision = index
    return Done()


def set_voter(state: State, index: int, command: SetVoter) -> Done:
    """Apply `SetVoter`; the leader brings the membership of the group there."""
    node = require_node(state, command.node)
    if node.voter != command.voter:
        node.voter = command.voter
        state.revision = index
    return Done()
