"""Streams that a node does not host, and one for which its disk has no room."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from braidlog import _native
from braidlog.client.retry import Verdict, verdict_of
from braidlog.errors import InvalidArgumentError, LogError, UnavailableError
from braidlog.logstream.effects import Limits
from braidlog.logstream.states import ReplicaState
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.replication.replicas import Replicas
from braidlog.serving.sessions import Request
from braidlog.store.node_store import NodeStore
from braidlog.wire.messages import (
    Append,
    Commit,
    Configure,
    LogCut,
    Read,
    StreamRun,
)
from unit.node.rescue.test_raw import config


class _Request:
    def __init__(self) -> None:
        self.errors: list[LogError] = []

    def fail(self, error: LogError) -> None:
        self.errors.append(error)


@pytest.mark.parametrize("kind", ["append", "read"])
def test_a_stream_that_is_elsewhere_is_asked_for_elsewhere(kind: str) -> None:
    """A node that was just dropped, or not told yet, must not end an append."""
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    peers: Any = None
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    request: Any = _Request()
    if kind == "append":
        replicas.append(Append(7, 0), [request], [b""])
    else:
        replicas.read(request, Read(7, 1, True, 100, 0), 0.0)
    [error] = request.errors
    assert verdict_of(error) is Verdict.MOVED
    assert error.outcome == "not_stored"
    store.close()


def test_what_a_replica_asks_for_waits_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is reported before the epoch's configuration is stored; nor lost."""
    disk = _native.MemoryDisk()
    store = NodeStore("/n", entropy=1, disk=disk)
    peers: Any = None
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    given = msgspec.structs.replace(config(), replicas=(1,))
    replicas.configure(Configure(1, (given,)))
    store_it = ReplicaStore.set_options
    refused: list[bytes] = []

    def refuse(self: ReplicaStore, options: bytes) -> None:
        if len(refused) < 2:
            refused.append(options)
            raise UnavailableError("no room")
        store_it(self, options)

    monkeypatch.setattr(ReplicaStore, "set_options", refuse)
    told = []
    for now in range(4):
        told += replicas.flush(float(now))
        replicas.synced(store.sync())
    assert len(refused) == 2
    assert [report.epoch for report in told] == [0, 1]
    assert [each.about for each in replicas.stored()] == refused[:1]
    store.close()


def test_no_room_for_one_stream_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What could not be made or deleted is so when the repository says it again."""
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    peers: Any = SimpleNamespace(send=lambda *letter: True)
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    first = msgspec.structs.replace(config(), replicas=(1,))
    second = msgspec.structs.replace(first, stream=first.stream + 1)
    cramped = {first.stream}
    create, delete = ReplicaStore.create, ReplicaStore.delete

    def create_it(node: NodeStore, number: int, options: bytes = b"") -> ReplicaStore:
        if number in cramped:
            raise UnavailableError("no room")
        return create(node, number, options)

    def delete_it(self: ReplicaStore) -> None:
        if self.number in cramped:
            raise UnavailableError("no room")
        delete(self)

    def hosted() -> list[int]:
        return [report.stream for report in replicas.reports()]

    monkeypatch.setattr(ReplicaStore, "create", create_it)
    monkeypatch.setattr(ReplicaStore, "delete", delete_it)
    both = (first.stream, second.stream)
    replicas.configure(Configure(1, (first, second)))
    assert hosted() == [second.stream]
    cramped.clear()
    replicas.configure(Configure(1, (first,)))
    assert sorted(hosted()) == [*both]
    cramped.add(first.stream)
    replicas.configure(Configure(2, (), both))
    assert hosted() == [first.stream]
    # It may be wanted again, and is what it would be after a start.
    learns = msgspec.structs.replace(first, epoch=2, replicas=(2,), learners=(1,))
    replicas.configure(Configure(3, (learns,)))
    assert [report.state for report in replicas.reports()] == [ReplicaState.LEARNING]
    cramped.clear()
    replicas.configure(Configure(4, (), both))
    assert hosted() == []
    store.close()


class _Session:
    """Who appends, and what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, ...]] = []
        self.refused: list[LogError] = []

    def answer_appends(self, rows: list[tuple[int, ...]]) -> None:
        self.told += rows

    def fail(self, _: int, error: LogError) -> None:
        self.refused.append(error)


@pytest.mark.parametrize("waits", [False, True])
def test_a_repeat_of_several_appends_is_refused_and_ends_nothing(
    *, waits: bool
) -> None:
    """A client may do so by mistake, or to see what happens."""
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    peers: Any = None
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    given = msgspec.structs.replace(config(), replicas=(1,))
    replicas.configure(Configure(1, (given,)))
    session: Any = _Session()

    def turn() -> None:
        for _ in range(3):
            replicas.flush(0.0)
            replicas.synced(store.sync())

    def append(number: int, first: int, *values: bytes) -> None:
        batch = _native.encode_batch(
            values, timestamps=0, producer=(9, 1), sequence=first
        )
        request = Request(session, number)
        replicas.append(Append(given.stream, 0), [request], [batch])
        turn()

    def cut(version: int, llsn: int, glsn: int) -> None:
        run = StreamRun(given.stream, llsn, glsn, 1, given.epoch)
        replicas.commit(Commit((LogCut(given.log, version, glsn, (run,)),)))
        turn()

    turn()
    version, start = given.version, given.start
    mark = given.high_watermark
    append(1, 1, b"a")
    append(2, 2, b"b")
    cut(version + 1, start, mark + 1)
    if waits:
        append(3, 1, b"a", b"b")
    # A record of another stream is between them.
    cut(version + 2, start + 1, mark + 3)
    if not waits:
        append(3, 1, b"a", b"b")
    assert [(number, glsn) for number, _, glsn, *_ in session.told] == [
        (1, mark + 1),
        (2, mark + 3),
    ]
    [refused] = session.refused
    assert isinstance(refused, InvalidArgumentError)
    assert "retry each" in refused.message
    [report] = replicas.reports()
    assert report.state == ReplicaState.RUNNING
    store.close()


def test_replicas_with_appends_that_wait_are_let_go() -> None:
    """The core holds requests, whose sessions hold the node, which holds the core."""
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    peers: Any = None
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    given = msgspec.structs.replace(config(), replicas=(1,))
    replicas.configure(Configure(1, (given,)))
    for _ in range(3):
        replicas.flush(0.0)
        replicas.synced(store.sync())
    session: Any = _Session()
    session.of = replicas
    batch = _native.encode_batch([b"x"], timestamps=0)
    replicas.append(Append(given.stream, 0), [Request(session, 1)], [batch])
    assert replicas.unanswered() == 1
    gone = weakref.ref(session)
    store.close()
    del replicas, session
    gc.collect()
    assert gone() is None


def test_no_append_goes_on_while_the_configuration_waits_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time alone must not let the core take appends of an epoch that is not stored."""
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    peers: Any = None
    replicas = Replicas(1, store, peers, Limits(), lambda: None)
    given = msgspec.structs.replace(config(), replicas=(1,))
    full = True
    store_it = ReplicaStore.set_options

    def refuse(self: ReplicaStore, options: bytes) -> None:
        if full:
            raise UnavailableError("no room")
        store_it(self, options)

    monkeypatch.setattr(ReplicaStore, "set_options", refuse)
    replicas.configure(Configure(1, (given,)))
    session: Any = _Session()
    batch = _native.encode_batch([b"x"], timestamps=0)
    told = []
    for now in range(1, 5):
        replicas.tick(float(now))
        replicas.append(Append(given.stream, 0), [Request(session, now)], [batch])
        told += replicas.flush(float(now))
        replicas.synced(store.sync())
        replicas.tick(now + 0.5)
        assert not replicas._hosted[given.stream].replica.core.is_settled
    assert given.epoch not in [report.epoch for report in told]
    full = False
    for now in range(5, 8):
        told += replicas.flush(float(now))
        replicas.synced(store.sync())
    assert told[-1].epoch == given.epoch
    assert replicas._hosted[given.stream].replica.core.is_settled
    store.close()
