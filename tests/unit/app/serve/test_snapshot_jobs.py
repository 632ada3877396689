"""Snapshots that a host takes because somebody elsewhere asks for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.app import Host, SnapshotFailedError, SnapshotSettings, connect_async
from braidlog.app.serve.process import HostServer, ServeSettings
from braidlog.app.serve.snapshot_jobs import SnapshotJobs
from braidlog.errors import NotFoundError
from braidlog.wire.messages import TakeSnapshot
from cluster.hosts import free_ports
from unit.app.banking import make_bank

QUIET = SnapshotSettings(automatic=False, reserve_bytes=0, kept=1)


class Steps:
    """Holds a snapshot up, or fails it, before a step of it."""

    def __init__(self) -> None:
        self.at = ""
        self.fail = ""
        self.reached = threading.Event()
        self.go = threading.Event()

    def __call__(self, name: str) -> None:
        if name == self.at:
            self.at = ""
            self.reached.set()
            assert self.go.wait(20)
        if name == self.fail:
            raise OSError(28, "no space")


@pytest.fixture
def steps() -> Steps:
    return Steps()


@pytest.fixture
def host(tmp_path: Path, steps: Steps) -> Iterator[Host]:
    with make_bank().open(
        tmp_path, snapshots=QUIET, step=steps, segment_bytes=1 << 20
    ) as host:
        for account in range(20):
            host.call("deposit", account, 5)
        yield host


async def test_a_host_takes_one_for_a_caller(host: Host) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    heard: list[tuple[int, int]] = []
    async with (
        HostServer(host, ServeSettings(listen=address)),
        connect_async(address) as bank,
    ):
        said = await bank.take_snapshot(progress=lambda *seen: heard.append(seen))
        (made,) = host.snapshots()
        assert (said.number, said.position) == (made.number, made.position)
        assert (said.bytes, said.first) == (made.size, made.position + 1)
        assert said.took_us == int(made.seconds * 1_000_000) > 0
        assert heard[-1][0] == heard[-1][1] > 0


async def test_two_who_ask_get_the_same_and_calls_go_on(
    host: Host, steps: Steps
) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    heard: list[tuple[int, int]] = []
    told = threading.Event()

    def hear(*seen: int) -> None:
        heard.append((seen[0], seen[1]))
        told.set()

    steps.at = "verify"
    async with (
        HostServer(host, ServeSettings(listen=address)),
        connect_async(address) as bank,
    ):
        asked = [
            asyncio.create_task(bank.take_snapshot(progress=hear)) for _ in range(2)
        ]
        await asyncio.to_thread(steps.reached.wait, 20)
        assert await bank.call("deposit", 1, 1) == 6
        told.clear()
        assert await asyncio.to_thread(told.wait, 20)
        # All is copied, and nothing read back.
        assert heard[-1][0] * 2 == heard[-1][1]
        steps.go.set()
        first, second = await asyncio.gather(*asked)
        assert first == second
        assert len(host.snapshots()) == 1
        # The next one who asks gets a new one.
        assert (await bank.take_snapshot()).position > first.position


def test_a_failure_is_told_and_the_next_one_begins_anew(
    host: Host, steps: Steps
) -> None:
    takings = SnapshotJobs(host)
    steps.fail = "list"
    with pytest.raises(SnapshotFailedError, match="no space"):
        until_there(takings)
    steps.fail = ""
    said = until_there(takings)
    assert said == host.snapshots()[-1].position
    with pytest.raises(NotFoundError, match="ask for a snapshot again"):
        takings.ask(TakeSnapshot(99))


def until_there(takings: SnapshotJobs) -> int:
    said = takings.ask(TakeSnapshot())
    while not said.number:
        said = takings.ask(TakeSnapshot(said.job))
    return int(said.position)
