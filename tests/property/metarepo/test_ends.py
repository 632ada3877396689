"""The core's collector does as the model does, whatever it is told and asked."""

from random import Random
from typing import Any

import pytest

from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.machine.repository import Repository
from braidlog.wire import commands
from braidlog.wire.messages import Report, StreamReport, StreamStatus
from braidlog.wire.results import Refused
from property.metarepo.answers import AnswerTimes
from property.metarepo.ends import Ends

LOGS = (b"a" * 16, b"b" * 16)
PLACES = (((1, 2), (2, 3), (3,)), ((1, 2, 3), (2, 1)))
NODES, STREAMS = (1, 2, 3), (1, 2, 3, 4, 5)
IN_FLIGHT_MAX = 3


class Both:
    """The core and the model, which get the same calls, and a repository for both."""

    def __init__(self) -> None:
        self.core, self.model = Collector(IN_FLIGHT_MAX), Ends(IN_FLIGHT_MAX)
        self.times, self.now = AnswerTimes(), 5.0
        self.repository = Repository()
        self.number = 0
        self.last = 1000
        self.flying: list[tuple[int, bytes]] = []
        for node in NODES:
            self.run(commands.RegisterNode(node, f"host:{node}", 1))
        for log, places in zip(LOGS, PLACES, strict=True):
            name = log.decode()
            made = commands.CreateLog(log, name, len(places), 3, 1, placement=places)
            self.run(made)
        assert set(STREAMS) == set(self.repository.state.streams)

    def run(self, command: commands.Command) -> None:
        self.repository.apply(self.repository.index + 1, commands.encode_call(command))

    def compare(self) -> None:
        core, model, state = self.core, self.model, self.repository.state
        assert core.stirred is model.stirred
        assert core.has_fresh == model.has_fresh
        assert core.in_flight == model.in_flight
        assert core.flying == model.flying
        assert list(core.reports) == list(model.reports)
        for node in (*NODES, 4):
            assert _of(core.node(node)) == _of(model.node(node))
            assert core.streams(node) == model.streams(node)
        for stream in state.streams.values():
            assert core.entered(stream) == model.entered(stream)
            reported = [core.report(node, stream.stream) for node in NODES]
            assert reported == [model.report(node, stream.stream) for node in NODES]
        for log in LOGS:
            for gone in ((), (1,), (2, 3)):
                durable = core.durable_version(state, log, gone)
                assert durable == model.durable_version(state, log, gone)

    def take(self, report: Report) -> None:
        taken = self.core.take(report)
        assert taken == self.model.take(report)
        if taken:
            state = self.repository.state
            self.core.measure(state, report, self.now)
            self.times.heard(state, self.core, report, self.now)

    # --- random calls

    def step(self, chance: Random) -> None:
        """Do one thing."""
        acts = [self.report, self.hold, self.hold, self.repeat, self.cut, self.cut]
        acts += [self.ripe, self.apply, self.apply, self.seldom]
        chance.choice(acts)(chance)
        self.now += chance.choice((0.0, 0.001, 0.05))
        self.compare()

    def report(self, chance: Random) -> None:
        """Let a node say anything."""
        self.number += chance.random() < 0.8
        told = tuple(
            StreamReport(
                chance.choice((*STREAMS, 9)),
                chance.choice((1, 1, 1, 2)),
                chance.randrange(40),
                chance.randrange(1, 30),
                chance.choice((chance.randrange(1, 30), 2**40, 2**63 - 1)),
                chance.choice((2, 2, 2, 3, 7, 1, 4, 5, 6)),
                chance.random() < 0.1,
            )
            for _ in range(chance.randrange(4))
        )
        node, start = chance.choice((*NODES, 4)), chance.choice((1, 2, 2, 2, 3))
        full, features = chance.random() < 0.3, chance.choice((0, 7))
        self.take(Report(node, start, self.number, full, told, features))

    def hold(self, chance: Random) -> None:
        """Let all replicas of some streams hold more of them, in their epochs."""
        moves = set(chance.sample(STREAMS, chance.randrange(1, 4)))
        more, behind = chance.randrange(24), chance.choice((0, 0, 1, 5))
        gone = chance.choice((0, 0, 0, *NODES))
        start = max([1, *(each.incarnation for each in self.model.reports.values())])
        for node in NODES:
            self.number += 1
            held = tuple(
                StreamReport(
                    each.stream,
                    each.epoch,
                    max(0, each.last_version - behind),
                    each.committed,
                    each.committed + more + node,
                    2,
                )
                for each in self.repository.state.streams.values()
                if node in each.replicas and each.stream in moves
            )
            if node != gone:
                self.take(Report(node, start, self.number, False, held))

    def repeat(self, chance: Random) -> None:
        """Let a node say again what it has said, or only a part of it."""
        node = chance.choice(NODES)
        known = self.model.node(node)
        if known is None:
            return
        told = list(known.streams.values())
        if told and chance.random() < 0.3:
            told.pop(chance.randrange(len(told)))
        self.number += chance.random() < 0.8
        full = chance.random() < 0.7
        self.take(Report(node, known.incarnation, self.number, full, tuple(told)))

    def cut(self, chance: Random) -> None:
        """Make a cut, and mostly log it."""
        state = self.repository.state
        excluded = set(chance.sample(STREAMS, chance.choice((0, 0, 1, 2))))
        gone = set(chance.sample(NODES, chance.choice((0, 0, 1, 2))))
        made = self.core.cut(state, excluded, gone)
        assert made == self.model.cut(state, excluded, gone)
        if made is None:
            return
        if chance.random() < 0.2:
            self.core.dropped()
            self.model.dropped()
            return
        self.last += 1
        self.core.proposed(self.last)
        self.model.proposed(self.last)
        self.flying.append((self.last, made))

    def ripe(self, chance: Random) -> None:
        """Ask whether a cut is worth it."""
        state = self.repository.state
        excluded = set(chance.sample(STREAMS, chance.choice((0, 0, 1, 2))))
        ripe = self.core.ripe(state, excluded)
        assert ripe == self.model.ripe(state, excluded)

    def apply(self, chance: Random) -> None:
        """Apply the next cut, or refuse it."""
        if not self.flying:
            return
        index, data = self.flying.pop(0)
        data = b"" if chance.random() < 0.1 else data
        result = self.repository.apply(self.repository.index + 1, data)
        refused = isinstance(result, Refused)
        settled = self.core.settled(index, refused=refused)
        assert settled == self.model.settled(index, refused=refused)

    def seldom(self, chance: Random) -> None:
        """Do what happens seldom."""
        doing = chance.randrange(7)
        if doing == 0:
            known = set(chance.sample((*NODES, 4), 3))
            self.core.forget_nodes(known)
            self.model.forget_nodes(known)
        elif doing == 1:
            stream = self.repository.state.streams[chance.choice(STREAMS)]
            status = chance.choice((StreamStatus.RUNNING, StreamStatus.SEALED))
            number, epoch, replicas = stream.stream, stream.epoch, stream.replicas
            self.run(commands.Reconfigure(number, epoch, replicas, (), status))
        elif doing == 2:
            other = chance.randrange(200)
            assert self.core.settled(other, refused=True) is None
        elif doing == 3:
            least = chance.choice((0.0, 0.01))
            lags = self.core.take_lags(self.repository.state, self.now, least)
            assert lags == self.times.take(self.repository.state, self.now, least)
        elif doing == 4:
            self.core.forget_lags()
            self.times.forget()
        else:
            self.core.stirred = self.model.stirred = False


def _of(node: Any) -> tuple[Any, ...] | None:
    return node and (node.incarnation, node.number, node.full, node.features)


@pytest.mark.parametrize("seed", range(24))
def test_the_core_does_as_the_model(seed: int) -> None:
    both, chance = Both(), Random(seed)
    for _ in range(400):
        both.step(chance)
    assert any(log.version > 5 for log in both.repository.state.logs.values())


def test_a_cut_is_proposed_once() -> None:
    with pytest.raises(ValueError, match="no cut"):
        Collector().proposed(1)
