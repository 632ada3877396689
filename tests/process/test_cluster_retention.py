"""Retention on nodes that are processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import braidlog
from braidlog.client import Client
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

WAIT_S = 60.0
PAUSE_S = 1.0
"""Ten looks at what may go."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = {
        "timing": {"retention_ms": 100},
        "limits": {"segment_bytes": 1 << 20, "wal_bytes_max": 1 << 28},
    }
    directory = tmp_path_factory.mktemp("cluster")
    with (
        LocalCluster(3, directory=directory, settings=settings) as cluster,
        braidlog.connect(cluster.seeds) as client,
    ):
        yield client


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


def test_old_records_go_unless_a_pin_holds_them(client: Client) -> None:
    log = client.create_log("aged", streams=2, retention_ms=3_600_000)
    for n in range(20):
        log.append(b"old", timestamp=n)
    young = log.append(b"young")
    log.append(b"old", timestamp=5)
    wait_until(lambda: log.refresh().start == young)
    assert [r.value for r in log.read()] == [b"young", b"old"]
    cursor = log.cursor("c", pin=True)
    assert cursor.position == young
    log.set_options(retention_ms=1)
    log.append(b"newer", timestamp=0)
    # The pin holds; once it moves, everything before it goes.
    cursor.commit(young + 1)
    wait_until(lambda: log.refresh().start == young + 1)
    cursor.delete()
    wait_until(lambda: len(log.refresh()) == 0)


def test_so_many_bytes_are_kept(client: Client) -> None:
    kept = 4 << 20
    log = client.create_log("sized", streams=2, retention_bytes=kept)
    block = [b"x" * 1000] * 200
    for _ in range(100):
        log.append_many(block)
    wait_until(lambda: log.refresh().start > 1)

    def settled() -> bool:
        return len(log.refresh()) * 1000 <= 3 * kept

    def at_rest() -> bool:
        start = log.refresh().start
        time.sleep(PAUSE_S)
        return log.refresh().start == start

    wait_until(settled)
    wait_until(at_rest)
    assert len(log.refresh()) * 1000 >= kept // 2
    assert next(log.read()).position == log.first
