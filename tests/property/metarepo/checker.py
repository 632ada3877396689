"""What has to hold, seen from outside: every applied entry goes through here."""

from __future__ import annotations

import hashlib

from braidlog.metarepo.machine.repository import Repository
from braidlog.wire.commands import Cut, decode_call
from braidlog.wire.messages import LogCut
from braidlog.wire.results import Refused, Result
from property.metarepo.model import Replica


class Violation(AssertionError):
    pass


def require(holds: bool, reason: str) -> None:
    if not holds:
        raise Violation(reason)


class Checker:
    def __init__(self) -> None:
        self.applied: dict[int, bytes] = {}
        self.states: dict[int, bytes] = {}
        self.glsns: dict[bytes, list[tuple[int, int]]] = {}
        self.placed: dict[int, list[int]] = {}
        self.values: dict[tuple[int, int], int] = {}
        self.acknowledged: dict[tuple[int, int], int] = {}

    def before(self, index: int, data: bytes) -> bool:
        """Tell whether nobody has applied the entry yet; all have to apply the same."""
        first = index not in self.applied
        require(self.applied.setdefault(index, data) == data, "two entries at an index")
        return first

    def after(self, repository: Repository) -> None:
        if repository.index % 5:
            return
        digest = hashlib.sha256(repository.snapshot()).digest()
        known = self.states.setdefault(repository.index, digest)
        require(known == digest, f"states differ at {repository.index}")

    def cut(
        self,
        data: bytes,
        result: Result,
        epochs: dict[int, tuple[int, tuple[int, ...], bool]],
        replicas: dict[tuple[int, int], Replica],
    ) -> None:
        """Check a cut against the disks, when it is applied for the first time."""
        command = decode_call(data).command
        if not isinstance(command, Cut) or isinstance(result, Refused):
            return
        for cut in command.cuts:
            self._log(cut)
            for run in cut.runs:
                epoch = run.epoch
                current, nodes, running = epochs[run.stream]
                require(current == epoch and running, "a cut in an ended epoch")
                for node in nodes:
                    disk = replicas[node, run.stream].disk
                    require(disk.epoch == epoch, "a replica is not in the epoch")
                    require(
                        disk.end >= run.llsn_begin + run.length,
                        "a cut takes what is not durable",
                    )

    def _log(self, cut: LogCut) -> None:
        glsns = self.glsns.setdefault(cut.log, [])
        for run in cut.runs:
            placed = self.placed.setdefault(run.stream, [])
            require(run.glsn_begin == len(glsns) + 1, "GLSNs are not dense")
            require(run.llsn_begin == len(placed) + 1, "LLSNs are not dense")
            for at in range(run.length):
                glsns.append((run.stream, run.llsn_begin + at))
                placed.append(run.glsn_begin + at)
        require(cut.high_watermark == len(glsns), "the high watermark is wrong")

    def replica(self, replica: Replica) -> None:
        """Check what a replica believes to be committed."""
        held = replica.held
        placed = self.placed.get(replica.stream, [])
        require(held.places == placed[: len(held.places)], "a position has changed")
        require(len(held.places) <= len(held.values), "a committed record is lost")
        for llsn in range(max(1, held.committed - 20), held.committed):
            value = held.values[llsn - 1]
            known = self.values.setdefault((replica.stream, llsn), value)
            require(known == value, f"two records at {replica.stream}/{llsn}")

    def complete(self, replica: Replica) -> None:
        """Check all of a replica at the end."""
        for (stream, llsn), value in self.acknowledged.items():
            if stream == replica.stream:
                require(replica.held.values[llsn - 1] == value, "a record was lost")
