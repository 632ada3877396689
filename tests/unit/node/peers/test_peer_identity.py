"""Which directory a node is known by, and what is stored of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.errors import CorruptionError, NodeIdentityError
from braidlog.metarepo.machine.repository import Repository
from braidlog.node.peers.identity import Identity, begin_incarnation, note_bound
from braidlog.node.peers.peer_identity import PeerIdentity
from braidlog.store.node_store import NodeStore
from braidlog.wire import commands
from braidlog.wire.commands import RegisterNode
from braidlog.wire.messages import Hello, Metadata, NodeInfo
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role

OWN, A, B = b"o" * 16, b"a" * 16, b"b" * 16


@pytest.fixture
def store(tmp_path: Path) -> NodeStore:
    return NodeStore(tmp_path / "n", entropy=1, now=lambda: 1, segment_bytes=4 << 20)


def member(store: NodeStore) -> tuple[PeerIdentity, Repository]:
    repository = Repository()
    who = Identity(OWN, 1)
    begin_incarnation(store, lambda size: OWN)
    known = PeerIdentity(store, 1, who, 1)
    known.repository = lambda: repository
    return known, repository


def register(repository: Repository, node: int, identity: bytes) -> None:
    command = RegisterNode(node, f"host:{node}", 1, identity)
    repository.apply(repository.index + 1, commands.encode_call(command))


def test_the_identity_stays_and_the_start_counts(store: NodeStore) -> None:
    first = begin_incarnation(store, lambda size: A)
    again = begin_incarnation(store, lambda size: B)
    assert (first.directory, first.incarnation) == (A, 1)
    assert (again.directory, again.incarnation) == (A, 2)
    note_bound(store, replace(again, group=1, bound=17))
    assert begin_incarnation(store, lambda size: B) == Identity(A, 3, 1, 17)


def test_a_directory_of_the_first_format_gets_an_identity(store: NodeStore) -> None:
    store.create(
        "node", b"BNOD" + (1).to_bytes(4, "little") + (6).to_bytes(8, "little")
    )
    assert begin_incarnation(store, lambda size: A) == Identity(A, 7)
    store.open("node").alter(b"BNOD" + bytes(20))
    with pytest.raises(CorruptionError):
        begin_incarnation(store, lambda size: A)


def test_a_stranger_is_refused_and_told_why(store: NodeStore) -> None:
    known, repository = member(store)
    known.check(2, B, 0)
    register(repository, 2, A)
    known.check(2, A, 0)
    authorize = known.guarded(lambda hello: Rights(Role.PEER))
    assert authorize(Hello(1, 1, "c", 2, identity=A)).role is Role.PEER
    with pytest.raises(NodeIdentityError) as caught:
        authorize(Hello(1, 1, "c", 2, identity=B))
    error = caught.value
    assert (error.node, error.given, error.known) == (2, B.hex(), A.hex())
    assert not known.holds(2, B, 0)
    # Somebody who comes as this node.
    assert not known.holds(1, A, 0)


def test_who_is_behind_lets_the_leader_in(store: NodeStore) -> None:
    known, repository = member(store)
    register(repository, 2, A)
    # Entry 9 gave the id to another directory: this member has not come so far.
    known.check(2, B, 9)
    for node in range(3, 12):
        register(repository, node, bytes([node]) * 16)
    assert not known.holds(2, B, 9)


def test_the_entry_that_gave_the_id_is_kept(store: NodeStore) -> None:
    known, repository = member(store)
    parted = []
    known.part = lambda: parted.append(1)
    known.look(1)
    assert known.bound() == 0
    register(repository, 1, OWN)
    known.look(1)
    known.look(1)
    assert (known.bound(), parted) == (repository.index, [1])
    who = begin_incarnation(store, lambda size: B)
    assert (who.group, who.bound) == (1, repository.index)
    # After a rescue entries are counted anew.
    assert PeerIdentity(store, 1, who, 2).bound() == 0


def test_who_is_no_member_goes_by_the_metadata(store: NodeStore) -> None:
    known, _ = member(store)
    known.repository = lambda: None
    node = NodeInfo(2, "host:2", True, True, identity=A)
    known.learn(Metadata(7, 1, "c", (node,), ()))
    assert known.holds(2, A, 0)
    assert not known.holds(2, B, 0)
    assert known.holds(2, B, 8)
