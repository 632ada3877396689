"""Break the nodes of a cluster under load, again and again, and look what is left.

    PYTHONPATH=tests python -m tests.cluster.faults --rounds 100 --nodes 3 [--seed N]

A round does something to one or more nodes, or to the network between them, for up to
a few seconds: SIGKILL, SIGSTOP, a partition, one-way too, a line that drops packets, a
clock that jumps, a full disk. Then it is mended, and the clients have to get on. Every
few rounds, and at the end, all streams have to get all their replicas back, and every
replica is compared with the others and with what the clients were told. The calls of
all clients, with their times, have to be linearizable (`cluster.history`).

`--volatile` puts the nodes on disks that forget what was not synced; then the power
fails, of all nodes at once too, and syncs become slow. With `--sockets loop` the event
loop of the nodes reads their sockets, as with TLS; else the core does. `--report FILE`
gets the result as JSON. The seed repeats the choices, not the moments.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import braidlog
from braidlog.errors import LogError
from braidlog.testing.cluster import LocalCluster
from cluster.chaos import Chaos
from cluster.check import verify
from cluster.history import Append, Look, violation
from cluster.load import Load, Promises

__all__ = ["Report", "run"]

LOG: Final = "faults"
STREAMS: Final = 4
VERIFY_EVERY: Final = 5
_PROGRAMS: Final = {"core": "braidlog", "loop": "cluster.loop_node"}
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
    looks: int = 0
    """Reads whose answers were held against the order of all calls."""
    longest_round_s: float = 0.0
    ended: int = 0
    """Nodes that ended by themselves, as those without space do."""
    seconds: float = 0.0
    violation: str = ""


class Storm:
    """One cluster, what is done to it, and what its clients were told."""

    def __init__(
        self,
        report: Report,
        directory: Path,
        stack: ExitStack,
        *,
        volatile: bool,
        package: Path | None = None,
        sockets: str = "core",
    ) -> None:
        self.report = report
        self.directory = directory
        cluster = directory / "cluster"
        seed = report.seed
        self.chaos = Chaos(
            report.nodes,
            seed,
            cluster,
            stack,
            SETTINGS,
            volatile=volatile,
            package=package,
            program=_PROGRAMS[sockets],
        )
        report.skipped = self.chaos.skipped
        report.faults = self.chaos.faults
        self.cluster = self.chaos.cluster
        self.promises = Promises()
        self.appends: list[Append] = []
        self.looks: list[Look] = []

    def round(self, load: Load) -> None:
        """Break something, wait, mend it; check that clients get on."""
        self.report.rounds += 1
        begun = time.monotonic()
        name, mend = self.chaos.strike()
        time.sleep(self.chaos.random.choice([0.1, 0.5, 1.0, 2.0, 4.0]))
        mend()
        self.chaos.start_all()
        load.wait_for(50, timeout=60.0)
        took = time.monotonic() - begun
        self.report.longest_round_s = max(took, self.report.longest_round_s)
        _say(f"round {self.report.rounds}: {name}, {took:.1f} s")

    def create(self) -> None:
        """Create the log, with a replica of each stream on every node."""
        asyncio.run(_create(self.cluster))

    def new_load(self) -> Load:
        seeds = self.cluster.seeds
        load = self.directory / "load"
        return Load(seeds, LOG, load, clients=3, tasks=4, history=True)

    def settle(self, load: Load) -> None:
        """Stop the clients and compare everything."""
        told = load.stop()
        self.promises.acknowledged |= told.acknowledged
        self.promises.submitted |= told.submitted
        self.promises.failures += told.failures
        # A node may have ended by itself, of a full disk, after it was mended.
        self.chaos.start_all()
        self.report.ended = self.chaos.ended
        check = verify(self.cluster.seeds, LOG, self.promises, self.cluster.nodes)
        values = asyncio.run(check)
        appends, looks = load.history()
        self.appends += appends
        self.looks += looks
        found = violation(self.appends, self.looks, dict(enumerate(values, 1)))
        assert not found, found
        self.report.records, self.report.looks = len(values), len(self.looks)
        _say(f"{self.report.records} records are on every replica")


async def _create(cluster: LocalCluster) -> None:
    async with braidlog.connect_async(cluster.seeds) as client:
        replicas = len(cluster.nodes)
        await client.create_log(LOG, streams=STREAMS, replication=replicas)


def run(
    report: Report,
    rounds: int,
    directory: Path,
    *,
    volatile: bool = False,
    sockets: str = "core",
) -> Report:
    """Do so many rounds; a violation ends it and is in the report."""
    begun = time.monotonic()
    with ExitStack() as stack:
        storm = Storm(report, directory, stack, volatile=volatile, sockets=sockets)
        storm.create()
        load = storm.new_load()
        try:
            while report.rounds < rounds:
                storm.round(load)
                if report.rounds % VERIFY_EVERY == 0 or report.rounds == rounds:
                    storm.settle(load)
                    load = storm.new_load()
        except (AssertionError, OSError, LogError) as error:
            report.violation = repr(error)
        finally:
            load.close()
        report.acknowledged = len(storm.promises.acknowledged)
        report.submitted = len(storm.promises.submitted)
        report.failures = len(storm.promises.failures)
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
    parser.add_argument("--sockets", choices=list(_PROGRAMS), default="core")
    parser.add_argument("--volatile", action="store_true")
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
        chosen = {"volatile": options.volatile, "sockets": options.sockets}
        run(report, options.rounds, data, **chosen)
    text = json.dumps(asdict(report), indent=2)
    if options.report is not None:
        options.report.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return 1 if report.violation else 0


if __name__ == "__main__":
    sys.exit(main())
