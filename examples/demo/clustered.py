"""The demo over a cluster on this machine, whose primary is killed on the way.

Theory of operation: the importing process appends through the client; all events go to
one stream, so line n belongs at position n as in an embedded log. Once the process has
reported the share of a mark as durable, the primary node is killed with SIGKILL. The
process is not told: it has to find the new primary and send the unanswered appends
again. It ends if a position is not that of its line. When appends continue, the node is
started again. Before the next kill, and before the replay, every replica must be back.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import braidlog
from braidlog.client import Client
from braidlog.testing.cluster import LocalCluster
from examples.demo.importer import importing_process
from examples.demo.options import LOG, DemoError
from examples.demo.run import Demo, Material
from examples.demo.supervisor import Failover, Mark, Progress, marks, reports

__all__ = ["ClusterDemo", "ClusterImport", "gap_ms"]

_HEAL_S: Final = 60.0
_POLL_S: Final = 0.02
# A pause that begins later than this after a kill has another reason.
_AROUND_S: Final = 1.0
_REPLICATION_MAX: Final = 3

Gap = tuple[float, float]
"""When nothing was acknowledged: the last time before it, and the first after it."""


@dataclass(slots=True)
class _Killed:
    """A primary that was killed."""

    node: int
    pid: int
    led: bool
    acknowledged: int
    at: float
    restarted: bool = False
    primary: int = 0


@dataclass(slots=True)
class ClusterImport:
    """Runs the importing process and kills primaries."""

    cluster: LocalCluster
    client: Client
    progress: Progress
    seconds: float = 0.0
    resent: int = 0
    _acknowledged: int = 0
    _killed: list[_Killed] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)

    def run(self, path: Path, events: int, kills: int) -> list[Failover]:
        """Import all lines of ``path``; return what each kill cost.

        Raises:
            DemoError: The process failed, or a node did not come back.
        """
        self._create()
        left = marks(events, kills)
        command = importing_process()
        command += ["--cluster", self.cluster.seeds, "--input", str(path)]
        for mark in left:
            command += ["--hold-at", str(mark.hold_at)]
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            ) as process,
        ):
            try:
                self._follow(process, left)
            finally:
                process.kill()
            code = process.wait()
            if code:
                errors.seek(0)
                said = errors.read().decode("utf-8", "replace").strip().splitlines()
                reason = said[-1] if said else "it said nothing"
                text = f"the importing process ended with code {code}: {reason}"
                raise DemoError(text)
        self.heal()
        return [self._cost(number) for number in range(len(self._killed))]

    def _create(self) -> None:
        replication = min(_REPLICATION_MAX, len(self.cluster.nodes))
        self.client.create_log(LOG, exist_ok=True, replication=replication)

    def _follow(self, process: subprocess.Popen[bytes], left: list[Mark]) -> None:
        for report in reports(process):
            self._acknowledged = report["stored"]
            self.progress(self._acknowledged)
            self.seconds = report.get("seconds", self.seconds)
            self.resent = report.get("resent", self.resent)
            if "gap" in report:
                began, ended = report["gap"]
                self._gaps.append((began, ended))
                self._restart(ended)
            if left and self._acknowledged >= left[0].stored:
                del left[0]
                self.heal()
                self._kill()
                _release(process)
        process.wait()

    def _kill(self) -> None:
        # The newest decision, not what this client happens to know.
        leader = self.client.metadata().leader
        node = self.client.streams(LOG)[0].replicas[0]
        pid = self.cluster.pid(node)
        at = time.monotonic()
        self.cluster.kill(node)
        killed = _Killed(node, pid, node == leader, self._acknowledged, at)
        self._killed.append(killed)

    def _restart(self, settled: float) -> None:
        """Start what was killed once appends go on without it."""
        for killed in self._killed:
            if not killed.restarted and settled > killed.at:
                replicas = self.client.streams(LOG)[0].replicas
                if killed.node in replicas:
                    continue  # what was on its way when the signal came
                killed.restarted, killed.primary = True, replicas[0]
                self.cluster.restart(killed.node)

    def heal(self) -> None:
        """Wait until every node serves and every replica is back.

        Raises:
            DemoError: They are not in time.
        """
        wanted = min(_REPLICATION_MAX, len(self.cluster.nodes))

        def whole() -> bool:
            stream = self.client.streams(LOG)[0]
            alive = {node.node for node in self.client.nodes() if node.alive}
            return len(alive & set(stream.replicas)) == wanted

        # A kill that nothing was acknowledged after: the import was done.
        self._wait(lambda: not self._waiting_for_primary(), "a new primary")
        for killed in self._killed:
            if not killed.restarted:
                self._restart(time.monotonic())
        self.cluster.wait_ready()
        self._wait(whole, "all replicas")

    def _waiting_for_primary(self) -> bool:
        replicas = self.client.streams(LOG)[0].replicas
        gone = {killed.node for killed in self._killed if not killed.restarted}
        return bool(gone & set(replicas))

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _HEAL_S
        while not done():
            if time.monotonic() > deadline:
                raise DemoError(
                    f"{what} did not come back in {_HEAL_S:.0f} s: see the node.log "
                    f"files below {self.cluster.directory}"
                )
            time.sleep(_POLL_S)

    def _cost(self, number: int) -> Failover:
        killed = self._killed[number]
        following = self._killed[number + 1 :]
        until = following[0].at if following else float("inf")
        return Failover(
            killed.node,
            killed.pid,
            killed.led,
            killed.acknowledged,
            gap_ms(self._gaps, killed.at, until),
            killed.primary,
        )


class ClusterDemo(Demo):
    """One run over a cluster."""

    cluster: LocalCluster
    client: Client

    def work(self, material: Material, scratch: Path) -> None:
        """Do what the demo does, with nodes around it."""
        assert self.options.nodes is not None  # noqa: S101, RUF100
        directory = self.data.absolute()
        with LocalCluster(self.options.nodes, directory=directory) as self.cluster:
            self.say(f"{self.options.nodes} nodes at {self.cluster.seeds}")
            with braidlog.connect(self.cluster.seeds) as self.client:
                super().work(material, scratch)

    def import_(self, material: Material) -> None:
        """Import in spite of primaries that are killed."""
        events, kills = material.survey.events, self.options.kills
        with self.progress("importing", events) as bar:
            job = ClusterImport(self.cluster, self.client, bar)
            found = job.run(material.path, events, kills)
        for each in found:
            role = "the primary and the leader" if each.led else "the primary"
            self.say(
                f"SIGKILL to node {each.node} (process {each.pid}), {role}: "
                f"{each.acknowledged:,} events were acknowledged; appends went on "
                f"{each.gap_ms:,.0f} ms later with node {each.primary}"
            )
            self.report.measure("gap", each.gap_ms, "ms")
        self.report.kills, self.report.resent = found, job.resent
        self.report.measure("import", events / job.seconds, "events/s")
        if found:
            self.report.check(
                "went on without the primary",
                all(each.primary not in (0, each.node) for each in found),
                ", ".join(f"{each.gap_ms:,.0f} ms" for each in found) + " without it",
            )

    def place(self) -> dict[str, Any]:
        """Return where the log is, for Spark and for `Origin`."""
        return {"cluster": self.cluster.seeds}


def gap_ms(gaps: list[Gap], at: float, until: float) -> float:
    """Return the longest gap that a kill at a time may have caused, in milliseconds."""
    lengths = [
        ended - began
        for began, ended in gaps
        if at < ended and began < min(at + _AROUND_S, until)
    ]
    return round(1000 * max(lengths, default=0.0), 1)


def _release(process: subprocess.Popen[Any]) -> None:
    """Let the process go on, if it holds."""
    assert process.stdin is not None  # noqa: S101, RUF100
    process.stdin.write(b"\n")
    process.stdin.flush()
