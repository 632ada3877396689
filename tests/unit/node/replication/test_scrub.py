"""A pass over what is on the disk of a node: when it reads what, and what it tells."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from braidlog import _native
from braidlog.errors import CorruptionError, NotReadyError, UnavailableError
from braidlog.logstream.effects import Limits
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import CommitContext
from braidlog.node.config import (
    ClusterSettings,
    LimitSettings,
    NodeConfig,
    NodeSettings,
    TimingSettings,
)
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.replication.replicas import Replicas
from braidlog.node.replication.scrub import Scrub
from braidlog.store.node_store import GROUP_PREFIX, NodeStore
from braidlog.wire.messages import Configure, Read
from unit.node.rescue.test_raw import config as stream_config

SEGMENT = 64 << 10
RATE = 1 << 20
STREAMS = (7, 8)
RECORDS = 60
VALUE = 3000


class Fixture:
    """A store with two streams and a group, some segments long, on a disk in memory."""

    def __init__(self, **limits: int) -> None:
        self.disk = _native.MemoryDisk()
        self.store = NodeStore(
            "/n",
            entropy=3,
            disk=self.disk,
            segment_bytes=SEGMENT,
            wal_bytes_max=64 * SEGMENT,
            recent_bytes_max=0,
        )
        self._fill()
        peers: Any = None
        self.replicas = Replicas(1, self.store, peers, Limits(), lambda: None)
        settings = {"scrub_bytes": RATE, "segment_bytes": SEGMENT} | limits
        self.config = NodeConfig(
            node=NodeSettings(id=1, data="/n"),
            cluster=ClusterSettings(voters={1: "127.0.0.1:7400"}),
            timing=TimingSettings(scrub_ms=1_000_000),
            limits=LimitSettings(**settings),
        )
        self.scrub = self.pass_of("1 1")

    def pass_of(self, seed: str) -> Scrub:
        """Return one that was started ten minutes ago: its first pass begins at 0."""
        scrub = Scrub(self.config, self.store, self.replicas, seed, lambda _: False)
        scrub.tick(-600.0)
        return scrub

    def _fill(self) -> None:
        stores = [ReplicaStore.create(self.store, stream) for stream in STREAMS]
        group = self.store.create(f"{GROUP_PREFIX}1", b"a")
        for number in range(RECORDS):
            for stream, replica in zip(STREAMS, stores, strict=True):
                replica.append(0, [batch(stream, number)])
            group.native.append(group.number, 0, [batch(1, number)])
            self.store.sync()
        for version, replica in enumerate(stores, 1):
            given = CommitContext(version, 1, 1, RECORDS, RECORDS * version)
            replica.commit(0, given)
        self.store.sync()

    def configure(self, *replicas: int) -> None:
        """Make the node a member of its streams."""
        streams = tuple(
            msgspec.structs.replace(
                stream_config(), stream=stream, replicas=replicas, start=RECORDS + 1
            )
            for stream in STREAMS
        )
        self.replicas.configure(Configure(1, streams))

    def flip(self, stream: int, number: int) -> None:
        """Damage a record."""
        wanted = value(stream, number)
        for path, _ in self.disk.files():
            offset = bytes(self.disk.read(path)).find(wanted)
            if path.endswith(".wal") and offset >= 0:
                self.disk.flip_bit(path, offset + 100)

    def damaged(self) -> set[int]:
        """Return the streams of which the replica here reports damage."""
        reports = self.replicas.reports()
        return {each.stream for each in reports if each.damaged}

    def told(self, caplog: pytest.LogCaptureFixture) -> str:
        """Let a pass end; return the one error that it logs."""
        with caplog.at_level(logging.ERROR):
            self.go(10.0)
        [said] = [record.getMessage() for record in caplog.records]
        return said

    def go(self, seconds: float, begin: float = 0.0) -> None:
        """Let time pass."""
        for step in range(int(seconds * 20)):
            self.scrub.tick(begin + step / 20)


def value(stream: int, number: int) -> bytes:
    return b"%04d/%04d" % (stream, number) + b"." * VALUE


def batch(stream: int, number: int) -> bytes:
    return _native.encode_batch([value(stream, number)], timestamps=1)


@pytest.fixture
def here() -> Iterator[Fixture]:
    fixture = Fixture()
    yield fixture
    fixture.store.close()


def test_a_pass_reads_everything_once_at_its_rate(here: Fixture) -> None:
    stored = 3 * RECORDS * VALUE
    counters = here.scrub.counters
    here.scrub.tick(-0.1)
    assert counters.scrubbed_bytes == 0
    here.scrub.tick(0.0)
    first = counters.scrubbed_bytes
    assert 0 < first <= SEGMENT
    here.scrub.tick(first / RATE * 0.9)
    assert counters.scrubbed_bytes == first
    here.go(10.0, first / RATE)
    assert counters.scrub_passes == 1
    # All but the newest segment, and little more than the records.
    assert stored - SEGMENT < counters.scrubbed_bytes < stored * 1.1
    assert counters.scrub_damages == 0


def test_the_next_pass_begins_an_interval_after_the_last(here: Fixture) -> None:
    here.go(10.0)
    read = here.scrub.counters.scrubbed_bytes
    here.go(1.0, 990.0)
    assert here.scrub.counters.scrubbed_bytes == read
    here.go(10.0, 1000.0)
    assert here.scrub.counters.scrub_passes == 2
    assert here.scrub.counters.scrubbed_bytes == 2 * read


def test_a_pass_begins_somewhere_and_goes_around(here: Fixture) -> None:
    begun, read = set(), set()
    for seed in range(20):
        scrub = here.pass_of(f"{seed}")
        scrub.tick(0.0)
        begun.add(scrub._begun[0])
        for step in range(1, 200):
            scrub.tick(step / 20)
        assert scrub.counters.scrub_passes == 1
        read.add(scrub.counters.scrubbed_bytes)
    assert len(begun) > 4
    assert len(read) == 1


def test_nothing_is_read_without_a_rate() -> None:
    fixture = Fixture(scrub_bytes=0)
    fixture.go(5.0)
    assert fixture.scrub.counters.scrubbed_bytes == 0
    fixture.store.close()


def test_a_damaged_replica_says_so(here: Fixture) -> None:
    """Before it was told what it is, too: who its others are makes no difference."""
    here.flip(7, 3)
    here.go(10.0)
    assert here.scrub.counters.scrub_damages == 1
    assert here.damaged() == {7}
    here.configure(1, 2)
    assert here.damaged() == {7}
    states = {each.stream: each.state for each in here.replicas.reports()}
    assert ReplicaState.INVALID not in states.values()


def test_a_pass_ends_though_more_is_written_all_the_time() -> None:
    here = Fixture(scrub_bytes=SEGMENT)
    here.flip(7, 3)
    # By lot the first pass begins with the oldest, or goes around to it.
    for step in range(1000):
        here.scrub.tick(step / 20)
        group = here.store.open(f"{GROUP_PREFIX}1")
        for number in range(2):
            group.native.append(group.number, 0, [batch(1, number)])
        here.store.sync()
        if here.scrub.counters.scrub_passes:
            break
    assert here.damaged() == {7}
    here.store.close()


def test_the_same_damage_is_told_once(
    here: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    here.flip(1, 3)
    here.told(caplog)
    here.go(10.0, 1000.0)
    here.flip(1, 5)
    here.go(10.0, 2000.0)
    assert here.scrub.counters.scrub_passes == 3
    assert here.scrub.counters.scrub_damages == len(caplog.records)
    assert len(caplog.records) <= 2


def test_the_only_copy_is_told_of_and_goes_on(
    here: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    here.configure(1)
    here.flip(8, 3)
    here.go(10.0)
    with caplog.at_level(logging.ERROR):
        here.replicas.flush(10.0)
    [said] = [record.getMessage() for record in caplog.records]
    assert (
        "the replica of stream 8 is damaged, and it is the only replica: /n/wal/"
        in said
    )
    assert here.scrub.counters.scrub_passes == 1
    [replica] = [h.replica for h in here.replicas._hosted.values() if h.replica.defect]
    with pytest.raises(CorruptionError):
        replica.read(Read(8, 4, False, 100, 0))
    assert replica.read(Read(8, 1, False, 100, 0)) is not None


def test_damage_in_the_log_of_the_repository_is_told(
    here: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    here.configure(1, 2)
    here.flip(1, 3)
    said = here.told(caplog)
    assert "replace the node" in said
    assert here.damaged() == set()


def test_damage_of_what_was_trimmed_costs_nothing(
    here: Fixture, caplog: pytest.LogCaptureFixture
) -> None:
    here.configure(1, 2)
    for stream in STREAMS:
        ReplicaStore(here.store, stream).trim(30)
    here.store.sync()
    here.flip(7, 3)
    said = here.told(caplog)
    assert said.startswith("the scrub found damage in bytes that are no longer needed")
    assert here.damaged() == set()


def test_a_disk_that_cannot_be_asked_is_asked_again(
    here: Fixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = []

    def refuse(*_: object, **__: object) -> None:
        calls.append(1)
        raise UnavailableError("too many open files", path="/n")

    with monkeypatch.context() as patch:
        patch.setattr(NodeStore, "scrub", refuse)
        here.go(59.0)
    assert len(calls) == 1
    assert "too many open files" in caplog.text
    here.go(10.0, 61.0)
    assert here.scrub.counters.scrub_passes == 1


def test_a_reader_meets_what_the_pass_finds(here: Fixture) -> None:
    here.configure(1, 2)
    here.flip(7, 3)
    [replica] = [
        each
        for each in here.replicas._hosted.values()
        if each.replica._core.stream == 7
    ]
    with pytest.raises(CorruptionError):
        replica.storage.read(1, RECORDS + 1, 1 << 20)
    here.go(10.0)
    with pytest.raises(NotReadyError):
        replica.replica.read(Read(7, 4, False, 100, 0))
