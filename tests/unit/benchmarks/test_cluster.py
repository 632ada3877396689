"""What the measurements of clusters compute and speak, without any cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from benchmarks.cluster import processes
from benchmarks.cluster.stages import STAGES, Events, split
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
    with pytest.raises(Unavailable, match="etcd-server"):
        processes.find("etcd", "etcd-server", tmp_path)
    program = tmp_path / "usr" / "bin" / "etcd"
    program.parent.mkdir(parents=True)
    program.touch()
    assert processes.find("etcd", "etcd-server", tmp_path) == program
