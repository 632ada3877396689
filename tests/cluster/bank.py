"""Breaks hosts and nodes under a bank, and checks what it had acknowledged.

Three nodes, two hosts, callers in processes of their own. Each round does something to
the nodes, the active host (the standby is promoted), or the standby: SIGKILL, SIGSTOP,
partitions, also one-way, a full disk; and mends it, while the callers go on. In every
round money is conserved and no host differs from the log. At the end a model without a
database reads the log: every acknowledged call is in it, and was answered what it gives
there when it comes first; both hosts have the balances and the hashes that follow, and
so has a replay of the log from zero, and from snapshots that were taken on the way.

    PYTHONPATH=tests python -m tests.cluster.bank --rounds 100
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import braidlog
from braidlog.app.caller.caller import Caller, connect
from braidlog.app.replay.run import replay
from braidlog.app.replay.snapshot_source import SnapshotStart, SnapshotStarts
from braidlog.client.settings import ClientSettings
from braidlog.errors import LogError
from braidlog.sources.cluster import ClusterSource
from cluster.banks import app, ledger
from cluster.caller import ACCOUNTS
from cluster.chaos import Chaos
from cluster.hostchaos import DISK_BYTES, HostChaos
from cluster.hosts import Callers, Hosts, closing

FIRST = 1000
SMALL: dict[str, dict[str, Any]] = {
    "limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20},
}
SETTINGS = ClientSettings(timeout_s=30, attempt_timeout_s=3)
# Snapshots often, all kept, and no trim: the whole log is checked at the end.
OPTIONS = (
    "--snapshots",
    "soft_bytes=128k,kept=100000,snapshots_min=99",
    # Who is active is decided here.
    "--promote-after",
    "off",
)
WHOM = ("nodes", "active", "standby")
# What a host may need for a round of a long loop.
_ROUND_BYTES = 10 << 20
# Replays from snapshots at the end, of each host.
_STARTS = 4
_PATIENCE_S = 60.0


@dataclass
class Tally:
    """What happened."""

    rounds: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    acknowledged: int = 0
    repeated: int = 0
    """Commands that were in the log again, and executed once."""
    unanswered: int = 0
    failures: int = 0
    snapshots: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    """Of a round: until calls were answered again after it was mended."""


class Bank:
    """A cluster, its hosts and callers, and what is done to them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.tally = Tally()
        self._directory = directory
        self._seed = seed
        self._active = 0

    def run(self, rounds: int) -> Tally:
        """Break things so many times, then check."""
        with ExitStack() as stack:
            self._open(stack, rounds)
            callers = Callers(self.hosts.addresses, self._directory / "callers")
            stack.enter_context(closing([callers]))
            callers.wait_for(20)
            for number in range(rounds):
                self.round(WHOM[number % len(WHOM)], callers)
            for host in self.hosts.numbers:
                self._wait_for_snapshot(host)
            self.check(callers)
        return self.tally

    def _open(self, stack: ExitStack, rounds: int) -> None:
        nodes = self._directory / "nodes"
        settings = SMALL | {"security": {"insecure": True}}
        beside = [Hosts.number(host) for host in range(2)]
        self.chaos = Chaos(3, self._seed, nodes, stack, settings, beside=beside)
        self.cluster = self.chaos.cluster
        self.tally.skipped = self.chaos.skipped
        self.hosts = Hosts(
            self.cluster.seeds,
            self._directory / "hosts",
            network=self.chaos.network,
            options=OPTIONS,
        )
        # All snapshots are kept, about one in a round.
        room = max(DISK_BYTES, rounds * _ROUND_BYTES)
        self.faults = HostChaos(self.hosts, self.chaos, stack, room)
        stack.enter_context(closing([self.hosts]))
        for host, options in enumerate(((), ("--standby",))):
            self.hosts.start(host, *options)
            self.hosts.wait_ready(host)
        self.caller = stack.enter_context(
            connect(self.hosts.addresses, settings=SETTINGS)
        )
        for account in range(ACCOUNTS):
            self.caller.call("deposit", account, FIRST)

    def round(self, whom: str, callers: Callers) -> None:
        """Break something, let calls go on without it, and mend it."""
        time.sleep(self.chaos.random.random() * 0.3)
        began = time.monotonic()
        if whom == "nodes":
            name, mend = self.chaos.strike()
        else:
            host = self._active if whom == "active" else 1 - self._active
            name, mend = self.faults.strike(host)
            if whom == "active":
                self._active = 1 - self._active
                self._promote(self._active)
            callers.wait_for(10)
        time.sleep(self.chaos.random.choice([0.1, 0.5, 1.0, 2.0]))
        mend()
        mended = time.monotonic()
        self.chaos.start_all()
        for host in self.hosts.numbers:
            self._bring_back(host)
        callers.wait_for(10)
        self.look()
        tally = self.tally
        tally.longest_s = max(tally.longest_s, time.monotonic() - mended)
        tally.rounds += 1
        tally.faults[f"{whom}: {name}"] = tally.faults.get(f"{whom}: {name}", 0) + 1
        tally.seconds += time.monotonic() - began
        sys.stderr.write(f"round {tally.rounds}: {whom}, {name}\n")

    def _bring_back(self, host: int) -> None:
        """Wait until a host serves, and start it if it ended: then, or later of what
        was done to it.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while not self.hosts.is_ready(host):
            assert time.monotonic() < deadline, f"not ready: {self.hosts.words(host)}"
            if not self.hosts.is_running(host):
                # Who was active and ended has been replaced, or takes over again.
                standby = host != self._active
                self.hosts.start(host, *(["--standby"] if standby else []))
            time.sleep(0.05)

    def _promote(self, host: int) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self.caller.promote(self.hosts.address(host))
            except LogError as error:
                if not error.retryable or time.monotonic() > deadline:
                    raise
            else:
                return

    def look(self) -> None:
        """Money is conserved, and no host differs from the log."""
        assert self.caller.call("total") == ACCOUNTS * FIRST, "money came or went"
        for host in self.hosts.numbers:
            said = self.hosts.status(host)
            assert said["mismatches"] == 0, said
            assert not said["stopped"], said

    def _wait_for_snapshot(self, host: int) -> None:
        """Let calls go on until a host has one to begin from."""
        deadline = time.monotonic() + _PATIENCE_S
        while not any(self._found(host)):
            assert time.monotonic() < deadline, f"host {host} took no snapshot"
            time.sleep(0.1)

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
        assert hashes[0] == hashes[1], "the hosts differ"
        for start in [None, *self._snapshots()]:
            assert self._replayed(start) == hashes[0], f"replay from {start} differs"

    def _snapshots(self) -> Iterator[SnapshotStart]:
        """Give some of the snapshots of each host, the newest and the oldest too."""
        for host in self.hosts.numbers:
            found = [*self._found(host)]
            self.tally.snapshots += len(found)
            yield from found[:: max(1, len(found) // _STARTS)]
            yield found[-1]

    def _found(self, host: int) -> Iterator[SnapshotStart]:
        directory = self.hosts.state(host) / "snapshots"
        return iter(SnapshotStarts(directory).found())

    def _replayed(self, start: SnapshotStart | None) -> tuple[bytes, ...]:
        """Return the hashes that follow from a snapshot, or from nothing."""
        with (
            tempfile.TemporaryDirectory(dir=self._directory) as directory,
            braidlog.connect(self.cluster.seeds) as client,
        ):
            path, source = Path(directory) / "state", ClusterSource(client, app.name)
            done = replay(app, source, path, starts=lambda _: start)
        return tuple(done.hashes[number] for number in range(app.partitions))

    def one(self, host: int) -> Caller:
        return connect(self.hosts.address(host), settings=SETTINGS)


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
