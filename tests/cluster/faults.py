"""Break the nodes of a cluster under load, again and again, and look what is left.

    PYTHONPATH=tests python -m tests.cluster.faults --rounds 100 --nodes 3 [--seed N]

A round does something to one or more nodes, or to the network between them, for up to
a few seconds: SIGKILL, SIGSTOP, a partition, one-way too, a full disk. Then it is
mended, and the clients have to get on. Every few rounds, and at the end, all streams
have to get all their replicas back, and every replica is compared with the others and
with what the clients were told. `--report FILE` gets it as JSON. The seed repeats the
choices, not the moments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import braidlog
from braidlog.errors import LogError
from braidlog.testing.cluster import LocalCluster
from cluster import disks, network
from cluster.check import verify
from cluster.load import Load, Promises

__all__ = ["Report", "run"]

LOG: Final = "faults"
STREAMS: Final = 4
VERIFY_EVERY: Final = 5
DISK_BYTES: Final = 512 << 20
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "limits": {"segment_bytes": 1 << 20, "wal_bytes_max": 256 << 20},
    "security": {"insecure": True},
}


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    seed: int
    nodes: int
    rounds: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    acknowledged: int = 0
    submitted: int = 0
    failures: int = 0
    records: int = 0
    longest_round_s: float = 0.0
    ended: int = 0
    """Nodes that ended by themselves, as those without space do."""
    seconds: float = 0.0
    violation: str = ""


class Chaos:
    """One cluster and what is done to it."""

    def __init__(self, report: Report, directory: Path, stack: ExitStack) -> None:
        self.report = report
        self.random = random.Random(report.seed)
        self.directory = directory
        numbers = range(1, report.nodes + 1)
        self.network: network.Network | None = None
        if why := network.why_not():
            report.skipped["partition"] = why
        else:
            self.network = stack.enter_context(network.Network(numbers))
        net = self.network
        self.cluster = LocalCluster(
            report.nodes,
            directory=directory / "cluster",
            settings=SETTINGS,
            hosts={node: net.host(node) for node in numbers} if net else None,
            launchers={node: net.launcher(node) for node in numbers} if net else None,
        )
        self.disks: dict[int, disks.Disk] = {}
        if why := disks.why_not():
            report.skipped["full disk"] = why
        else:
            for node in numbers:
                path = self.cluster.data(node)
                self.disks[node] = disks.Disk(path, DISK_BYTES, stack)
        stack.enter_context(self.cluster)
        self.promises = Promises()

    # --- faults; each returns what mends it

    def kill(self) -> Callable[[], None]:
        nodes = self._some(self.report.nodes)
        for node in nodes:
            self.cluster.kill(node)
        self.report.ended -= len(nodes)
        return lambda: None  # Whoever does not run is started after each round.

    def freeze(self) -> Callable[[], None]:
        nodes = self._some(self.report.nodes // 2 + 1)
        for node in nodes:
            self.cluster.send(node, signal.SIGSTOP)

        def mend() -> None:
            for node in nodes:
                self.cluster.send(node, signal.SIGCONT)

        return mend

    def isolate(self) -> Callable[[], None]:
        assert self.network is not None
        for node in self._some(self.report.nodes // 2 + 1):
            self.network.isolate(node)
        return self.network.heal

    def cut(self) -> Callable[[], None]:
        """Cut some of the ways between nodes, each direction by itself."""
        assert self.network is not None
        for _ in range(self.random.randint(1, self.report.nodes)):
            self.network.cut(*self.random.sample(self.cluster.nodes, 2))
        return self.network.heal

    def fill(self) -> Callable[[], None]:
        nodes = self._some(2)
        for node in nodes:
            self.disks[node].fill()

        def mend() -> None:
            for node in nodes:
                self.disks[node].free()

        return mend

    def _some(self, most: int) -> list[int]:
        """Return nodes that run; mostly a single one."""
        count = self.random.choice([1, 1, 1, self.random.randint(1, most)])
        return self.random.sample(self.cluster.nodes, count)

    def possible(self) -> dict[str, Callable[[], Callable[[], None]]]:
        found = {"kill": self.kill, "freeze": self.freeze}
        if self.network is not None:
            found |= {"isolate": self.isolate, "cut": self.cut}
        if self.disks:
            found["full disk"] = self.fill
        return found

    # --- rounds

    def round(self, load: Load) -> None:
        """Break something, wait, mend it; check that clients get on."""
        name, fault = self.random.choice(list(self.possible().items()))
        self.report.faults[name] = self.report.faults.get(name, 0) + 1
        self.report.rounds += 1
        begun = time.monotonic()
        mend = fault()
        time.sleep(self.random.choice([0.1, 0.5, 1.0, 2.0, 4.0]))
        mend()
        self._start_all()
        load.wait_for(50, timeout=60.0)
        took = time.monotonic() - begun
        self.report.longest_round_s = max(took, self.report.longest_round_s)
        _say(f"round {self.report.rounds}: {name}, {took:.1f} s")

    def _start_all(self) -> None:
        for node in self.cluster.nodes:
            if not self.cluster.is_running(node):
                self.report.ended += 1
                self.cluster.restart(node)
        self.cluster.wait_ready()

    def new_load(self) -> Load:
        seeds = self.cluster.seeds
        return Load(seeds, LOG, self.directory / "load", clients=3, tasks=4)

    def settle(self, load: Load) -> None:
        """Stop the clients and compare everything."""
        told = load.stop()
        self.promises.acknowledged |= told.acknowledged
        self.promises.submitted |= told.submitted
        self.promises.failures += told.failures
        # A node may have ended by itself, of a full disk, after it was mended.
        self._start_all()
        check = verify(self.cluster.seeds, LOG, self.promises, self.cluster.nodes)
        self.report.records = asyncio.run(check) - 1
        _say(f"{self.report.records} records are on every replica")


async def _create(cluster: LocalCluster) -> None:
    async with braidlog.connect(cluster.seeds) as client:
        replicas = len(cluster.nodes)
        await client.create_log(LOG, streams=STREAMS, replication=replicas)


def run(report: Report, rounds: int, directory: Path) -> Report:
    """Do so many rounds; a violation ends it and is in the report."""
    begun = time.monotonic()
    with ExitStack() as stack:
        chaos = Chaos(report, directory, stack)
        asyncio.run(_create(chaos.cluster))
        load = chaos.new_load()
        try:
            while report.rounds < rounds:
                chaos.round(load)
                if report.rounds % VERIFY_EVERY == 0 or report.rounds == rounds:
                    chaos.settle(load)
                    load = chaos.new_load()
        except (AssertionError, OSError, LogError) as error:
            report.violation = repr(error)
        finally:
            load.close()
        report.acknowledged = len(chaos.promises.acknowledged)
        report.submitted = len(chaos.promises.submitted)
        report.failures = len(chaos.promises.failures)
    report.seconds = round(time.monotonic() - begun, 1)
    return report


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3, choices=(3, 5))
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32)
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    _say(f"seed {options.seed}")
    report = Report(options.seed, options.nodes)
    with ExitStack() as stack:
        data = options.data
        if data is None:
            temporary = tempfile.TemporaryDirectory(prefix="braid-faults-")
            data = Path(stack.enter_context(temporary))
        run(report, options.rounds, data)
    text = json.dumps(asdict(report), indent=2)
    if options.report is not None:
        options.report.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return 1 if report.violation else 0


if __name__ == "__main__":
    sys.exit(main())
