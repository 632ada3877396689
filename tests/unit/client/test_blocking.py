"""The blocking client beyond what the conformance suite asks of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from braidlog.client import BlockingClient
from braidlog.errors import ClosedError, TimeoutError_
from unit.client.fake import FakeCluster


@pytest.fixture
def client() -> Iterator[BlockingClient]:
    with BlockingClient(lambda: FakeCluster().client()) as client:
        yield client


def test_threads_share_a_client(client: BlockingClient) -> None:
    log = client.create_log("log", streams=2)
    threads = [
        threading.Thread(target=lambda: [log.append(b"v") for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.position for record in log] == list(range(1, 81))


def test_an_iteration_that_is_left(client: BlockingClient) -> None:
    log = client.create_log("log")
    log.append_many([b"%d" % i for i in range(10)])
    for record in log.subscribe():
        if record.position == 3:
            break
    assert log[4].value == b"3"


def test_a_subscription_wakes_up(client: BlockingClient) -> None:
    log = client.create_log("log")
    timer = threading.Timer(0.02, log.append, (b"late",))
    timer.start()
    assert next(log.subscribe()).value == b"late"
    timer.join()


def test_cursors(client: BlockingClient) -> None:
    log = client.create_log("log")
    log.append_many([b"a", b"b"])
    cursor = log.cursor("c")
    cursor.commit(3)
    assert [(c.name, c.position, c.pin) for c in log.cursors()] == [("c", 3, False)]
    cursor.delete()
    assert log.cursors() == []


def test_after_the_close(client: BlockingClient) -> None:
    log = client.create_log("log")
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        log.append(b"a")
    with pytest.raises(ClosedError):
        list(log.read())


def test_a_cluster_that_is_not_there() -> None:
    def make() -> object:
        fake = FakeCluster()
        fake.dead = set(fake.nodes)
        return fake.client(timeout_s=0.05)

    with pytest.raises(TimeoutError_):
        BlockingClient(make).__enter__()  # type: ignore[arg-type]
    assert "braidlog-client" not in [t.name for t in threading.enumerate()]


def test_what_is_submitted_keeps_its_order(client: BlockingClient) -> None:
    log = client.create_log("log")
    pending = [log.submit_many([b"%d" % n, b"+"]) for n in range(20)]
    assert [tuple(each.result()) for each in pending] == [
        (2 * n + 1, 2 * n + 2) for n in range(20)
    ]
    with pytest.raises(TypeError):
        log.submit_many(["text"])  # type: ignore[list-item]


def test_metadata_is_of_one_moment(client: BlockingClient) -> None:
    client.create_log("log", streams=2)
    metadata = client.metadata()
    assert [(log.name, len(log.streams)) for log in metadata.logs] == [("log", 2)]
    assert metadata.leader == 1
