"""The blocking client beyond what the conformance suite asks of it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import duckdb
import polars
import pyarrow as pa
import pytest

from braidlog.client import Client, ClientSettings, connect
from braidlog.errors import ClosedError, ConnectionLostError, NotReadyError
from braidlog.wire.messages import Read
from unit.client.fake import FakeCluster


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(lambda: FakeCluster().client()) as client:
        yield client


def test_threads_share_a_client(client: Client) -> None:
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


def test_an_iteration_that_is_left(client: Client) -> None:
    log = client.create_log("log")
    log.append_many([b"%d" % i for i in range(10)])
    for record in log.subscribe():
        if record.position == 3:
            break
    assert log[4].value == b"3"


def test_a_subscription_wakes_up(client: Client) -> None:
    log = client.create_log("log")
    timer = threading.Timer(0.02, log.append, (b"late",))
    timer.start()
    assert next(log.subscribe()).value == b"late"
    timer.join()


def test_cursors(client: Client) -> None:
    log = client.create_log("log")
    log.append_many([b"a", b"b"])
    cursor = log.cursor("c")
    cursor.commit(3)
    assert [(c.name, c.position, c.pin) for c in log.cursors()] == [("c", 3, False)]
    cursor.delete()
    assert log.cursors() == []


def test_after_the_close(client: Client) -> None:
    log = client.create_log("log")
    client.close()
    client.close()
    with pytest.raises(ClosedError):
        log.append(b"a")
    with pytest.raises(ClosedError):
        list(log.read())
    assert not log.wait(9)


def test_a_cluster_that_is_not_there() -> None:
    def make() -> object:
        fake = FakeCluster()
        fake.dead = set(fake.nodes)
        return fake.client(timeout_s=0.05)

    before = set(threading.enumerate())
    with pytest.raises(ConnectionLostError):
        Client(make).__enter__()  # type: ignore[arg-type]
    assert "braidlog-client" not in [
        t.name for t in set(threading.enumerate()) - before
    ]


def test_what_is_submitted_keeps_its_order(client: Client) -> None:
    log = client.create_log("log")
    pending = [log.submit_many([b"%d" % n, b"+"]) for n in range(20)]
    assert [tuple(each.result()) for each in pending] == [
        (2 * n + 1, 2 * n + 2) for n in range(20)
    ]
    with pytest.raises(TypeError):
        log.submit_many(["text"])  # type: ignore[list-item]


def test_metadata_is_of_one_moment(client: Client) -> None:
    client.create_log("log", streams=2)
    metadata = client.metadata()
    assert [(log.name, len(log.streams)) for log in metadata.logs] == [("log", 2)]
    assert metadata.leader == 1


def test_a_log_is_an_arrow_stream(client: Client) -> None:
    log = client.create_log("log", streams=2)
    assert pa.table(log).equals(log.to_arrow())
    log.append_many([b"a", b"b"], keys=[b"k", None], headers=[[("h", b"1")], None])
    log.append(b"c", key=b"m")
    assert pa.table(log).equals(log.to_arrow())
    assert pa.schema(log) == log.to_arrow().schema
    assert polars.DataFrame(log).equals(polars.DataFrame(log.to_arrow()))
    query = "select count(*), max(position) from log"
    assert duckdb.sql(query).fetchall() == [(3, 3)]


def test_a_stream_of_a_log_ends_where_the_log_did(client: Client) -> None:
    log = client.create_log("log")
    log.append(b"a")
    stream = pa.RecordBatchReader.from_stream(log)
    log.append(b"b")
    assert stream.read_all()["value"].to_pylist() == [b"a"]
    log.trim(2)
    assert pa.table(log)["position"].to_pylist() == [2]


def test_a_stream_of_a_log_is_read_as_it_is_asked_for() -> None:
    fake = FakeCluster()
    with Client(lambda: fake.client(prefetch_bytes=1)) as client:
        log = client.create_log("log")
        for _ in range(20):
            log.append(b"v" * 100)
        before = len(fake.received)
        stream = pa.RecordBatchReader.from_stream(log)
        stream.read_next_batch()
        reads = [m for _, m in fake.received[before:] if isinstance(m, Read)]
        stream.close()
    assert len(reads) < 20


def test_a_stream_of_a_log_that_fails_says_why(client: Client) -> None:
    log = client.create_log("log")
    log.append_many([b"a", b"b"])
    stream = pa.RecordBatchReader.from_stream(log)
    log.trim(3)
    with pytest.raises(pa.ArrowException, match="position 1 was trimmed"):
        stream.read_all()


def test_the_length_of_a_log(client: Client) -> None:
    log = client.create_log("log")
    assert len(log) == 0
    log.append_many([b"a", b"b", b"c"])
    log.trim(2)
    assert len(log) == 2
    assert [record.value for record in reversed(log)] == [b"c", b"b"]


def test_it_says_where_its_cluster_is(client: Client) -> None:
    assert "n1:7400,n2:7400,n3:7400" in repr(client)
    assert "n1:7400,n2:7400,n3:7400" in repr(client._target)


@pytest.mark.parametrize("seed", ["nobody.invalid:7400", "127.0.0.1:1"])
def test_why_no_seed_answers_is_said_and_nothing_else(
    seed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seeds = [seed, "127.0.0.1:2"]
    with pytest.raises(ConnectionLostError) as caught:
        connect(seeds, settings=ClientSettings(refused_s=0.3)).__enter__()
    told = str(caught.value)
    assert "cannot connect to 127.0.0.1:2: " in told
    assert f"cannot connect to {seed}: " in told
    assert "127.0.0.1:2: Connection refused" in told
    assert "did not answer" not in told
    assert "producer" not in told
    gc.collect()
    assert capfd.readouterr().err == ""


def test_messages_name_the_call_that_was_made(client: Client) -> None:
    log = client.create_log("log")
    with pytest.raises(TypeError, match=r"^Client\.create_log\(\) got an unexpected"):
        client.create_log("other", stream=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^ClusterLog\.append\(\) missing 1"):
        log.append()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^ClusterLog\.read\(\) got an unexpected"):
        next(log.read(revers=True))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^stream must be an int, not str$"):
        client.seal("1")  # type: ignore[arg-type]
    assert repr(log) == "<ClusterLog 'log'>"
    assert repr(log.cursor("c")) == "<ClusterCursor 'c' of 'log' at 1>"
    assert client.logs() == ["log"]


def test_a_client_that_was_not_entered_says_so() -> None:
    client = connect("127.0.0.1:1")
    try:
        with pytest.raises(NotReadyError, match=r"in `with braidlog.connect\(...\)`"):
            client.create_log("log")
    finally:
        client.close()


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"settings must be a .*ClientSettings, not int"
    ):
        connect("127.0.0.1:1", settings=3)  # type: ignore[arg-type]
