"""What must hold of a stream, whatever happens to its replicas."""

from __future__ import annotations

from typing import Any

from braidlog.errors import LogError
from braidlog.logstream import ReplicaState
from braidlog.wire.messages import Appended, Read, StreamReport
from unit.logstream.group import Group
from unit.logstream.memory import text_of
from unit.logstream.repository import STREAM


class ViolationError(Exception):
    """A rule does not hold."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


class Checker:
    """What was seen so far, to compare with."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.truth: dict[int, tuple[int, str]] = {}
        """GLSN and text by LLSN, as soon as any replica has it committed."""
        self.acknowledged: dict[str, Appended] = {}
        self.refused: set[str] = set()
        """Texts that were refused for certain and never sent again."""
        self.epochs: dict[int, int] = {}
        self.answered: set[Any] = set()

    def answer(
        self, request: Any, text: str, answer: Appended | LogError, *, once: bool
    ) -> None:
        require(request not in self.answered, f"{request} is answered twice")
        self.answered.add(request)
        if isinstance(answer, Appended):
            end = answer.llsn + answer.count
            require(end <= self.group.repository.committed, f"{text} before its cut")
            self._on_all_disks(text, answer)
            first = self.acknowledged.setdefault(text, answer)
            same = (first.llsn, first.glsn) == (answer.llsn, answer.glsn)
            require(same, f"{text} has two places: {first}, {answer}")
        elif answer.outcome == "not_stored" and once:
            self.refused.add(text)

    def _on_all_disks(self, text: str, answer: Appended) -> None:
        repository = self.group.repository
        for node in repository.config.replicas if repository.open else ():
            disk = self.group.disks[node]
            require(disk.durable.next > answer.llsn, f"{text} is not durable on {node}")

    def report(self, node: int, report: StreamReport) -> None:
        disk = self.group.disks[node].durable
        require(report.epoch <= disk.epoch, f"{node} is not durably in {report}")
        require(report.version <= disk.context.version, f"{node}: version of {report}")
        if report.state is ReplicaState.RUNNING:
            require(report.end <= disk.next, f"{node} does not have {report}")
        last = self.epochs.get(node, 0)
        require(report.epoch >= last, f"the epoch of {node} falls below {last}")
        self.epochs[node] = report.epoch

    def logs(self) -> None:
        """Compare the committed logs of all replicas with one another."""
        for node, disk in self.group.disks.items():
            for llsn, (glsn, text) in disk.seen.items():
                self._is_true(node, llsn, glsn, text)
            disk.seen.clear()
            self._log(node, disk.log())

    def _log(self, node: int, log: list[tuple[int, int, str]]) -> None:
        llsn = 0
        for begin, glsn, text in log:
            require(begin > llsn, f"{node} has {begin} behind {llsn}")
            llsn = begin
            self._is_true(node, begin, glsn, text)

    def _is_true(self, node: int, llsn: int, glsn: int, text: str) -> None:
        known = self.truth.setdefault(llsn, (glsn, text))
        # Where a replica passes over trimmed records their GLSNs are lost; what it
        # makes of them is below the trim as well, so nobody is given it.
        if known[1] == text and max(glsn, known[0]) < self.group.repository.trim:
            return
        require(known == (glsn, text), f"{node} has {glsn} {text} for {known}")
        require(text not in self.refused, f"{text} was refused and is there")

    def read(self, node: int, begin: int) -> None:
        """Read from a GLSN; whatever the answer calls complete must be in it."""
        try:
            message = Read(STREAM, begin, True, 120, 0)
            answer = self.group.replicas[node].read(message)
        except LogError:
            return
        if answer is None:
            return
        records, batches = answer
        got = {
            llsn: text_of(data)
            for llsn, data in zip(records.llsns, batches, strict=True)
        }
        for llsn, (glsn, text) in self.truth.items():
            if llsn in got:
                require(got[llsn] == text, f"{node} reads {got[llsn]} for {text}")
            elif begin <= glsn - 2 and glsn <= records.complete:
                require(False, f"{node} left {text} out of {records}")

    def end(self) -> None:
        """Check what must hold when all is at rest."""
        self.logs()
        texts = [text for _, text in self.truth.values()]
        require(len(set(texts)) == len(texts), "a batch is there twice")
        places = {text: (llsn, glsn) for llsn, (glsn, text) in self.truth.items()}
        for text, answer in self.acknowledged.items():
            require(text in places, f"{text} was acknowledged and is lost")
            # The last record of the batch is what the log shows the GLSN of.
            expected = (answer.llsn, answer.glsn + answer.count - 1)
            require(places[text] == expected, f"{text} has moved from {answer}")
