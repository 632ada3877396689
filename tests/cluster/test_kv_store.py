"""The key-value store of `examples/kv_store` is linearizable, whatever is killed."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from sim.checkers import Operation, check_register
from sim.errors import ViolationError

from braidlog.testing.cluster import LocalCluster
from cluster.kv_servers import Clients, Line, Servers

KILLS = int(os.environ.get("BRAIDLOG_ROUNDS", "10"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)
TTL_S = 0.6

pytestmark = [pytest.mark.process, pytest.mark.slow]


def storm(tmp_path: Path, kills: int, *, hasty: bool = False) -> Clients:
    """Kill and pause servers and nodes under clients; return what these were told."""
    randoms = random.Random(SEED)
    began = time.monotonic()
    with (
        LocalCluster(3, directory=tmp_path / "nodes") as cluster,
        Servers(cluster.seeds, tmp_path, 3, TTL_S, hasty=hasty) as servers,
    ):
        servers.active()
        with Clients(servers.ports, SEED) as clients:
            for number in range(0, kills, 2):
                node = randoms.choice(cluster.nodes)
                if number % 4:
                    cluster.kill(node)
                kill_server(servers, clients, randoms)
                if number % 4:
                    cluster.start(node)
                    cluster.wait_ready(node)
                else:
                    kill_server(servers, clients, randoms)
                if number % 10 == 0:
                    pause_owner(servers, clients)
                clients.wait_for(10)
            servers.check_running()
        print(  # noqa: T201, RUF100
            f"seed {SEED}: {kills} kills in {time.monotonic() - began:.0f} s, "
            f"{clients.answered} answers, {clients.unknown} of unknown outcome"
        )
    return clients


def kill_server(servers: Servers, clients: Clients, randoms: random.Random) -> None:
    """Kill any server, more often the active one; another takes over, or the same."""
    owner = servers.active()
    server = owner if randoms.random() < 0.6 else randoms.randrange(3)
    servers.kill(server)
    if randoms.random() < 0.3:
        clients.wait_for(10)
    servers.start(server)


def pause_owner(servers: Servers, clients: Clients) -> None:
    """Stop the active server until another has taken over and answered."""
    owner = servers.active()
    servers.pause(owner)
    try:
        servers.active(but=owner)
        clients.wait_for(20)
    finally:
        servers.wake(owner)


@pytest.mark.timeout(180)
def test_a_store_that_is_killed_is_linearizable(tmp_path: Path) -> None:
    clients = storm(tmp_path, KILLS)
    clients.check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_store_that_is_killed_for_long_is_linearizable(tmp_path: Path) -> None:
    storm(tmp_path, max(KILLS, 500)).check()


@pytest.mark.timeout(90)
@pytest.mark.parametrize("hasty", [False, True], ids=["confirmed", "hasty"])
def test_a_server_that_wakes_too_late_answers_nothing_old(
    tmp_path: Path, hasty: bool
) -> None:
    """One that answers from its memory does, and the checker sees that."""
    told: list[Operation] = []

    def tell(write: bool, value: str, begin: float) -> None:
        told.append(Operation("c", write, value, begin, time.monotonic()))

    with (
        LocalCluster(3, directory=tmp_path / "nodes") as cluster,
        Servers(cluster.seeds, tmp_path, 2, TTL_S, hasty=hasty) as servers,
    ):
        owner = servers.active()
        first, second = (Line(servers.ports[n], 20) for n in (owner, 1 - owner))
        begin = time.monotonic()
        assert first.ask(op="put", key="k", value="old") == {"stored": True}
        tell(True, "old", begin)
        servers.pause(owner)
        assert servers.active(but=owner) == 1 - owner
        begin = time.monotonic()
        assert second.ask(op="put", key="k", value="new") == {"stored": True}
        tell(True, "new", begin)
        begin = time.monotonic()
        first.send(op="get", key="k")
        servers.wake(owner)
        answer = first.receive()
        if hasty:
            tell(False, answer["value"], begin)
            with pytest.raises(ViolationError):
                check_register(told)
        else:
            assert answer["outcome"] == "not_stored", answer
        first.close()
        second.close()
