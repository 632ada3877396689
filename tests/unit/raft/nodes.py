"""Nodes of a group without a network: the test gives them what they get."""

from typing import Any

from braidlog.raft import (
    Base,
    Effects,
    Membership,
    RaftConfig,
    RaftNode,
    Stored,
)

THREE = Membership(voters=(1, 2, 3))


def config(**settings: Any) -> RaftConfig:
    defaults: dict[str, Any] = {"id": 1, "incarnation": 1, "jitter": lambda: 0}
    return RaftConfig(**{**defaults, **settings})


def follower(**settings: Any) -> RaftNode:
    return RaftNode(config(**settings), Stored(Base(membership=THREE)))


def lone_leader(**settings: Any) -> RaftNode:
    node = RaftNode(config(**settings), Stored(Base(membership=Membership((1,)))))
    node.tick(10)
    run(node)
    return node


def run(node: RaftNode) -> list[Effects]:
    """Store and apply everything at once."""
    done = []
    while effects := node.effects():
        done.append(effects)
        if effects.write:
            node.durable(effects.write.number)
        if effects.committed:
            node.applied(effects.committed[-1].index)
    return done
