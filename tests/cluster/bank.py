"""Kills hosts and nodes under a bank in turn, and checks what it had acknowledged.

Three nodes, two hosts, callers in processes of their own. Each round kills the active
host (the standby is promoted), the standby, or a node, and starts it again, while the
callers go on. In every round money is conserved and no host differs from the log. At
the end a model without a database reads the log: every acknowledged call is in it, and
was answered what it gives there when it comes first; both hosts have the balances and
the hashes that follow, and so has one that replays the log from zero.

    python -m tests.cluster.bank --rounds 100
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from braidlog.app.remote import Caller, connect_sync
from braidlog.client.settings import ClientSettings
from braidlog.testing.cluster import LocalCluster
from cluster.banks import app, ledger
from cluster.caller import ACCOUNTS
from cluster.hosts import Callers, Hosts, closing

FIRST = 1000
SMALL = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}
SETTINGS = ClientSettings(timeout_s=30, attempt_timeout_s=3)
KINDS = ("active", "standby", "node")


@dataclass
class Tally:
    """What happened."""

    rounds: int = 0
    acknowledged: int = 0
    repeated: int = 0
    """Commands that were in the log again, and executed once."""
    unanswered: int = 0
    failures: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    """Until calls were answered again after a kill."""


class Bank:
    """A cluster, its hosts and callers, and what is done to them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.tally = Tally()
        self._directory = directory
        self._random = random.Random(seed)
        self._active = 0

    def run(self, rounds: int) -> Tally:
        """Kill so many times, then check."""
        with ExitStack() as stack:
            self.cluster = stack.enter_context(
                LocalCluster(3, directory=self._directory / "nodes", settings=SMALL)
            )
            self.hosts = Hosts(self.cluster.seeds, self._directory / "hosts")
            stack.enter_context(closing([self.hosts]))
            for host, options in enumerate(((), ("--standby",))):
                self.hosts.start(host, *options)
                self.hosts.wait_ready(host)
            self.caller = stack.enter_context(
                connect_sync(self.hosts.addresses, settings=SETTINGS)
            )
            for account in range(ACCOUNTS):
                self.caller.call("deposit", account, FIRST)
            callers = Callers(self.hosts.addresses, self._directory / "callers")
            stack.enter_context(closing([callers]))
            callers.wait_for(20)
            for number in range(rounds):
                self.round(KINDS[number % len(KINDS)], callers)
            self.check(callers)
        return self.tally

    def round(self, kind: str, callers: Callers) -> None:
        """Kill one, let calls go on without it, and let it come back."""
        time.sleep(self._random.random() * 0.3)
        began = time.monotonic()
        standby = 1 - self._active
        if kind == "node":
            node = self._random.choice(self.cluster.nodes)
            self.cluster.kill(node)
        elif kind == "standby":
            self.hosts.kill(standby)
        else:
            self.hosts.kill(self._active)
            self.caller.promote(self.hosts.address(standby))
            self._active, standby = standby, self._active
        callers.wait_for(10)
        self.tally.longest_s = max(self.tally.longest_s, time.monotonic() - began)
        if kind == "node":
            self.cluster.restart(node)
            self.cluster.wait_ready(node)
        else:
            self.hosts.start(standby, "--standby")
            self.hosts.wait_ready(standby)
        callers.wait_for(10)
        assert self.caller.call("total") == ACCOUNTS * FIRST, "money came or went"
        for host in self.hosts.numbers:
            said = self.hosts.status(host)
            assert said["mismatches"] == 0, said
            assert not said["stopped"], said
        self.tally.rounds += 1
        self.tally.seconds += time.monotonic() - began

    def check(self, callers: Callers) -> None:
        """Compare what callers were told, the log, and all states."""
        told = callers.stop()
        tally = self.tally
        tally.acknowledged = len(told.answers)
        tally.unanswered = len(told.begun - told.answers.keys())
        tally.failures = len(told.failures)
        for host in self.hosts.numbers:
            with self.one(host) as caller:
                assert caller.call("total") == ACCOUNTS * FIRST
        log = ledger(self.cluster.seeds)
        tally.repeated = log.repeated
        missing = told.answers.keys() - log.answers.keys()
        assert not missing, f"{len(missing)} acknowledged calls are not in the log"
        wrong = {c for c, a in told.answers.items() if log.answers[c] != a}
        assert not wrong, f"{len(wrong)} calls were answered what they did not give"
        hashes = []
        for host in self.hosts.numbers:
            with self.one(host) as caller:
                for account, balance in log.balances.items():
                    assert caller.call("balance", account) == balance
                hashes.append(caller.status(hashes=True).hashes)
        directory = self._directory / "replayed"
        seeds = self.cluster.seeds
        with app.open_cluster(seeds, directory, active=False) as other:
            hashes.append(tuple(other.hashes()[1]))
        assert hashes[0] == hashes[1], "the hosts differ"
        assert hashes[0] == hashes[2], "replay from zero gives another state"

    def one(self, host: int) -> Caller:
        return connect_sync(self.hosts.address(host), settings=SETTINGS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    print(f"seed {given.seed}")  # noqa: T201, RUF100
    data = given.data or Path(tempfile.mkdtemp(prefix="braidlog-bank-"))
    print(Bank(data, given.seed).run(given.rounds))  # noqa: T201, RUF100


if __name__ == "__main__":
    main()
