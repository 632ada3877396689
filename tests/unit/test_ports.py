"""Where the nodes of a local cluster listen, chosen once and kept."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from braidlog.errors import InvalidArgumentError, UnavailableError
from braidlog.testing.cluster import LocalCluster
from braidlog.testing.ports import Reservation, keep_ports, kept_ports

DAMAGED = ["", "{}", "null", "[1]", '["a", "b"]', "[0, 1]", "[70000, 1]", "\0" * 9]


@pytest.mark.parametrize("text", [None, *DAMAGED])
def test_what_is_damaged_or_gone_is_taken_from_the_settings(
    tmp_path: Path, text: str | None
) -> None:
    """Other ports, or another number of nodes, would be another cluster."""
    ports, file = (
        kept_ports(LocalCluster(3, directory=tmp_path).directory),
        "ports.json",
    )
    (tmp_path / file).unlink()
    if text is not None:
        (tmp_path / file).write_text(text)
    assert kept_ports(tmp_path) == ports
    LocalCluster(3, directory=tmp_path)
    assert json.loads((tmp_path / file).read_text()) == ports
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "node-1", "node-2", "node-3", file,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[node]\n", '[node]\nlisten = 7\nhttp = ""\n'])
def test_without_either_nothing_is_chosen_anew(tmp_path: Path, text: str) -> None:
    cluster = LocalCluster(1, directory=tmp_path)
    (tmp_path / "ports.json").write_text("")
    cluster.settings_file(1).write_text(text)
    with pytest.raises(InvalidArgumentError, match="restore one of them"):
        keep_ports(tmp_path, 1, Reservation())


def test_all_who_choose_at_a_time_get_the_same(tmp_path: Path) -> None:
    held = [Reservation() for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        chosen = list(pool.map(lambda each: keep_ports(tmp_path, 2, each), held))
    assert chosen == [kept_ports(tmp_path)] * 32


def is_free(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_nobody_gets_a_port_before_its_node_or_while_the_node_is_down(
    tmp_path: Path,
) -> None:
    cluster = LocalCluster(1, directory=tmp_path)
    ports = kept_ports(tmp_path)
    assert [is_free(port) for port in ports] == [False, False]
    with cluster:
        cluster.kill(1)
        assert [is_free(port) for port in ports] == [False, False]
        # Nobody listens there either: callers are refused at once.
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[0]))
        cluster.restart(1)
        cluster.wait_ready(1)


def test_a_cluster_that_is_dropped_lets_its_ports_go(tmp_path: Path) -> None:
    LocalCluster(1, directory=tmp_path)
    assert [is_free(port) for port in kept_ports(tmp_path)] == [True, True]


def test_ports_that_are_wanted_are_chosen_once(tmp_path: Path) -> None:
    wanted = Reservation().choose(4)  # Free again: nothing holds the reservation.
    assert keep_ports(tmp_path, 2, Reservation(), wanted) == wanted
    assert kept_ports(tmp_path) == wanted
    assert keep_ports(tmp_path, 2, Reservation(), wanted) == wanted
    with pytest.raises(InvalidArgumentError, match="leave the ports out"):
        keep_ports(tmp_path, 2, Reservation(), [*wanted[:3], wanted[3] + 1])


def test_a_wanted_port_that_is_taken_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(UnavailableError, match=f"port {taken} is in use"):
            keep_ports(tmp_path, 1, Reservation(), [taken, taken + 1])
    assert kept_ports(tmp_path) == []
