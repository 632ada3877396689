"""What the measurements of clusters compute and speak, without any cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from benchmarks.cluster import load, processes
from benchmarks.cluster.load import Bound
from benchmarks.cluster.questions.clients import merged
from benchmarks.cluster.stages import STAGES, Events, split
from benchmarks.cluster.systems import redis
from benchmarks.cluster.systems.etcd import _answer
from benchmarks.cluster.systems.nats import Connection
from benchmarks.contest import Unavailable


def test_stages_of_an_append() -> None:
    events: Events = {
        "primary:append": [5, 110, 400],
        "primary:placed": [8, 115],
        "replicate": [50, 130, 140],
        "synced": [118, 145, 150, 190],
        "report": [60, 155, 160],
        "write": [165, 180],
        "primary:commit": [200],
        "primary:answer": [205],
    }
    parts = split((100, 220), events)
    assert parts == [10, 5, 25, 10, 10, 5, 35, 5, 15]
    assert len(parts) == len(STAGES)
    assert sum(parts) == 120


def test_an_append_without_all_its_events_is_left_out() -> None:
    assert split((100, 220), {"primary:append": [110]}) is None


class Socket:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


@pytest.mark.parametrize("cut", [1, 3, 1000])
async def test_answers_of_nats_may_be_cut_anywhere(cut: int) -> None:
    connection: Any = Connection()
    socket = Socket()
    connection.connection_made(socket)
    first = connection.request(b"bench", b"x")
    second = connection.request(b"bench", b"y")
    await asyncio.sleep(0)
    assert socket.written[-1] == (b"PUB bench _A.1 1\r\nx\r\nPUB bench _A.2 1\r\ny\r\n")
    data = b"INFO {}\r\nPING\r\nMSG _A.2 1 2\r\n\r\n\r\nPONG\r\nMSG _A.1 1 3\r\nabc\r\n"
    for at in range(0, len(data), cut):
        connection.data_received(data[at : at + cut])
    assert (first.result(), second.result()) == (b"abc", b"\r\n")
    assert connection.ready.done()
    assert socket.written[-1] == b"PONG\r\n"


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nabcde",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    ],
)
async def test_answers_of_etcd(body: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"HTTP/1.1 200 OK\r\n" + body + b"HTTP/1.1 500 X\r\n")
    assert await _answer(reader) == (b"200", b"abcde")
    assert await reader.readline() == b"HTTP/1.1 500 X\r\n"


def test_programs_are_found_in_the_folder_or_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    with pytest.raises(Unavailable, match="make peers"):
        processes.find("etcd", tmp_path)
    program = tmp_path / "usr" / "bin" / "etcd"
    program.parent.mkdir(parents=True)
    program.touch()
    assert processes.find("etcd", tmp_path) == program


async def test_calls_under_way_at_the_end_are_not_in_the_rate() -> None:
    client: Any = Slow()
    run = await load.callers(client, b"x", Bound(1_000, 0.05), 4)
    late = len(run.took_us) - run.done
    assert 1 <= late <= 4
    figures = run.figures(records=10)
    assert figures["per_second"] == 10 * run.done / (run.end - run.begin)
    assert figures[load.APPENDS] == 10 * len(run.took_us)


async def test_a_workload_ends_after_its_calls() -> None:
    client: Any = Slow()
    run = await load.callers(client, b"x", Bound(8, 60.0), 4)
    assert len(run.took_us) == run.done == client.calls == 8


class Slow:
    """A client whose appends take a millisecond."""

    calls = 0

    async def append(self, _: bytes) -> None:
        self.calls += 1
        await asyncio.sleep(0.001)


def test_figures_of_client_processes_are_put_together() -> None:
    one = {"begin": 1.0, "end": 2.0, "done": 30, "took_us": [5.0] * 30, "spent_us": 90}
    two = {"begin": 1.5, "end": 3.0, "done": 9, "took_us": [7.0] * 10, "spent_us": 70}
    assert merged([one, two]) == {
        "per_second": 39 / 2,
        "p99_us": 7.0,
        "client_us": 160 / 40,
        load.APPENDS: 40,
    }


@pytest.mark.parametrize("cut", [1, 4, 1000])
async def test_appends_of_redis_wait_for_what_is_synced(cut: int) -> None:
    connection: Any = redis.Connection()
    socket = Socket()
    connection.connection_made(socket)
    xadd = redis.encode(b"XADD", b"log", b"*", b"v", b"value")
    assert (
        xadd
        == b"*5\r\n$4\r\nXADD\r\n$3\r\nlog\r\n$1\r\n*\r\n$1\r\nv\r\n$5\r\nvalue\r\n"
    )
    first, second = connection.add([xadd]), connection.add([xadd])
    assert first is second
    await asyncio.sleep(0)
    (sent,) = socket.written
    assert sent.startswith(xadd + xadd + b"*4\r\n$7\r\nWAITAOF\r\n")
    data = b"$3\r\n1-1\r\n$3\r\n1-2\r\n*2\r\n:1\r\n:2\r\n"
    for at in range(0, len(data), cut):
        assert not first.done()
        connection.data_received(data[at : at + cut])
    await asyncio.sleep(0)
    assert first.result() is None
    third = connection.add([xadd])
    await asyncio.sleep(0)
    connection.data_received(b"$3\r\n1-3\r\n*2\r\n:1\r\n:1\r\n")
    with pytest.raises(RuntimeError, match=r"synced on \[1, 1\]"):
        await third


async def test_who_waits_for_nats_hears_that_the_server_is_gone() -> None:
    connection: Any = Connection()
    connection.connection_made(Socket())
    answer = connection.request(b"bench", b"x")
    connection.connection_lost(None)
    with pytest.raises(ConnectionError):
        await answer
