"""Real nodes with few descriptors, and crowds that take what they get.

The crowds are silent or slow. While they are there appends go on and segments begin;
the nodes live, and serve others.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client import Client
from braidlog.testing.cluster import LocalCluster

Connect = Callable[[], Client]

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

FILES = 300
"""What each node may open: 172 connections, of which 43 have not said who they are."""
CROWD = 500
LIMITS = {"segment_bytes": 1 << 20, "wal_bytes_max": 256 << 20}


def poor(cluster_nodes: int) -> dict[int, list[str]]:
    """Return what starts nodes with a low limit of open files."""
    limited = f'ulimit -n {FILES} && exec "$@"'
    return {n: ["sh", "-c", limited, "sh"] for n in range(1, cluster_nodes + 1)}


@contextmanager
def crowd(addresses: list[str], begins: bytes = b"") -> Iterator[Callable[[], int]]:
    """Keep connecting to all addresses, until each has been met by a crowd."""
    stop, made = threading.Event(), [0] * len(addresses)

    def come(index: int) -> None:
        host, _, port = addresses[index].rpartition(":")
        held: list[socket.socket] = []
        while not stop.is_set():
            with contextlib.suppress(OSError):
                each = socket.create_connection((host, int(port)), timeout=5)
                held.append(each)
                each.send(begins)
            made[index] += 1
            if len(held) > CROWD:
                held.pop(0).close()
            if made[index] > CROWD:
                time.sleep(0.005)
        for each in held:
            each.close()

    threads = [
        threading.Thread(target=come, args=(index,)) for index in range(len(addresses))
    ]
    for thread in threads:
        thread.start()
    try:
        yield lambda: min(made)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def store_under(made: Callable[[], int], connect: Connect) -> int:
    """Append as one newcomer after the other, until all nodes have met the crowd."""
    count, more = 0, 10
    deadline = time.monotonic() + 90
    while more:
        assert time.monotonic() < deadline, (made(), count)
        more -= made() > CROWD
        with connect() as there:
            there.log("orders").append_many([b"x" * 10_000] * 10)
        count += 10
    return count


def store(nodes: LocalCluster, connect: Connect, begins: bytes) -> None:
    """Append while a crowd is there; afterwards all of it is."""
    with connect() as there:
        there.create_log("orders", replication=len(nodes.nodes))
    with crowd([nodes.address(each) for each in nodes.nodes], begins) as made:
        count = store_under(made, connect)
    nodes.wait_ready()
    with connect() as there:
        log = there.log("orders")
        assert log.append(b"after") == count + 1
        assert sum(1 for _ in log.read()) == count + 1


@pytest.mark.parametrize("begins", [b"", b"\xff\x00\x00\x00"])
def test_a_crowd_that_says_nothing_stops_no_cluster(begins: bytes) -> None:
    with LocalCluster(3, settings={"limits": LIMITS}, launchers=poor(3)) as nodes:
        seeds = [nodes.address(each) for each in nodes.nodes]
        store(nodes, lambda: braidlog.connect(seeds), begins)


def test_half_handshakes_of_tls_stop_no_node(tmp_path: Path) -> None:
    crt, key = tmp_path / "node.crt", tmp_path / "node.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", os.fspath(key), "-out", os.fspath(crt)]
    subprocess.run(command, check=True, capture_output=True)
    files = {"certificate": str(crt), "key": str(key), "authority": str(crt)}
    settings: dict[str, Any] = {"limits": LIMITS, "security": files}
    trusts = ssl.create_default_context(cafile=crt)
    with LocalCluster(1, settings=settings, launchers=poor(1)) as nodes:
        seeds, begins = [nodes.address(1)], b"\x16\x03\x01\x02\x00\x01"
        store(nodes, lambda: braidlog.connect(seeds, ssl=trusts), begins)
