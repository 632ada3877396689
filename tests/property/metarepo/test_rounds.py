"""The lane does for a Raft group what Python does: two members, one without a lane.

Both get the same inputs: reports, answers and appends of other nodes as frames, syncs,
time, commands. The lane of the first takes what it can; of the second it takes nothing.
Compared is what the others are told, what is on the disk, and what was applied.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from braidlog.logstream.states import ReplicaState
from braidlog.raft import Entry, EntryKind
from braidlog.raft import codec as raft_codec
from braidlog.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    PreVoteResponse,
    VoteResponse,
)
from braidlog.wire import commands
from braidlog.wire.messages import Consensus, GetMetadata, Report, StreamReport
from property.metarepo.rounds import NODE, OTHERS, PLACES, STREAMS, Member
from unit.metarepo.bench import LOG


class Walk:
    """The same random inputs for both members."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.both = Member(laned=True), Member(laned=False)
        self.number = 0
        self.calls = 0
        self.ends: dict[int, dict[int, int]] = {}

    def each(self, name: str, *given: Any) -> None:
        for member in self.both:
            getattr(member, name)(*given)

    def compare(self) -> None:
        laned, plain = self.both
        self.each("settle")
        assert laned.told() == plain.told()
        assert laned.entries() == plain.entries()
        assert laned.standing() == plain.standing()

    @property
    def core(self) -> Any:
        return self.both[1].member.group.raft.core


class Leading(Walk):
    """Node 1 leads; the others vote for it, report and answer."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.matched = dict.fromkeys(OTHERS, 0)
        while self.core.role.value != "leader":
            self.each("tick", 0.05)
            self.each("turn")
            self.each("sync")
            self.each("turn")
            self._vote()
        for _ in range(3):
            self.answer_all()
        for node in (NODE, *OTHERS):
            self.command(commands.RegisterNode(node, f"n{node}:7400", 1))
            self.number += 1
            self.each("hear", node, Report(node, 1, self.number, True, ()))
        self.command(
            commands.CreateLog(LOG, "log", len(PLACES), 3, 1, placement=PLACES)
        )
        for _ in range(6):
            self.answer_all()
        for node in (NODE, *OTHERS):
            self.ends[node] = {}
            self.report(node, full=True)
        self.each("turn")
        self.compare()

    def _vote(self) -> None:
        kinds = {"pre-candidate": (PreVoteResponse, 1), "candidate": (VoteResponse, 0)}
        for role, (kind, ahead) in kinds.items():
            if self.core.role.value != role:
                continue
            for node in OTHERS:
                term = self.core.term + ahead
                vote = kind(node, NODE, term, epoch=0, granted=True)
                self.each("hear", node, Consensus(1), raft_codec.encode(vote))
            self.each("turn")
            self.each("sync")
            self.each("turn")

    def command(self, command: commands.Command) -> None:
        self.calls += 1
        self.each("execute", command, b"%16d" % self.calls)
        self.each("turn")
        self.answer_all()

    def _command(self) -> commands.Command:
        """Return what comes between cuts, and may take away what they need."""
        stream = self.chance.choice(STREAMS)
        seals = self.chance.random() < 0.2
        kinds: tuple[commands.Command, ...] = (
            commands.SetCursor(LOG, f"c{self.calls % 3}", self.calls),
            commands.Seal(stream) if seals else commands.Unseal(stream),
            commands.Trim(LOG, self.calls),
        )
        return self.chance.choice(kinds)

    def answer(self, node: int, index: int) -> None:
        core = self.core
        response = AppendResponse(
            node,
            NODE,
            core.term,
            epoch=0,
            rejected=False,
            index=index,
            hint_index=0,
            hint_term=0,
        )
        self.matched[node] = max(index, self.matched[node])
        self.each("hear", node, Consensus(1), raft_codec.encode(response))

    def answer_all(self) -> None:
        self.each("sync")
        self.each("turn")
        for node in OTHERS:
            self.answer(node, self.core.log.last)
        self.each("turn")

    def report(self, node: int, *, full: bool = False) -> None:
        state = self.both[1].member.group.repository.state
        self.number += 1
        streams = []
        for stream in STREAMS:
            found = state.streams[stream]
            if node in found.replicas and (full or self.chance.random() < 0.7):
                end = max(self.ends[node].get(stream, 1), found.committed)
                end += self.chance.choice((0, 0, 1, 5))
                self.ends[node][stream] = end
                committed = found.committed - (self.chance.random() < 0.1)
                told = StreamReport(
                    stream,
                    found.epoch,
                    self.chance.choice((0, found.last_version)),
                    max(committed, 1),
                    end,
                    ReplicaState.RUNNING,
                )
                streams.append(told)
        self.each("hear", node, Report(node, 1, self.number, full, tuple(streams)))

    def step(self) -> None:
        doing = self.chance.randrange(20)
        if doing < 9:
            for node in self.chance.sample((NODE, *OTHERS), 3):
                self.report(node)
        elif doing < 12:
            self.each("sync")
        elif doing < 16:
            for node in self.chance.sample(OTHERS, self.chance.randrange(1, 3)):
                last = self.core.log.last
                lacks = last - self.matched[node]
                self.answer(node, last - self.chance.randint(0, max(lacks, 0)))
        elif doing == 16:
            self.each("tick", self.chance.choice((0.05, 0.1)))
            for node in OTHERS:
                self.report(node, full=self.chance.random() < 0.5)
        elif doing == 17:
            self.calls += 1
            self.each("execute", self._command(), b"%16d" % self.calls)
        elif doing == 18:
            self.compare()
        else:
            self.each("turn")
            self.answer_all()
        if self.chance.random() < 0.8:
            self.each("turn")


class Following(Walk):
    """Node 1 follows node 2, whose log grows by cuts and by what is seldom."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sent: list[Entry] = []
        self.heard = self.commit = 0
        self.append(Entry(1, 1, EntryKind.EMPTY, b""))
        self.each("turn")

    def append(self, *entries: Entry, commit: int | None = None) -> None:
        previous = self.sent[-1] if self.sent else Entry(0, 0, EntryKind.EMPTY, b"")
        self.sent += entries
        self.commit = max(self.commit, min(commit or 0, len(self.sent)))
        message = Append(
            2,
            NODE,
            1,
            epoch=0,
            prev_index=previous.index,
            prev_term=previous.term,
            commit=self.commit,
            entries=entries,
        )
        self.each("hear", 2, Consensus(1), raft_codec.encode(message))

    def _entry(self, index: int) -> Entry:
        if self.chance.random() < 0.85:
            call: commands.Command = commands.Cut((), ())
        else:
            node = self.chance.choice((1, 2, 3))
            call = commands.RegisterNode(node, f"n{node}:{index}", index)
        return Entry(index, 1, EntryKind.DATA, commands.encode_call(call))

    def step(self) -> None:
        doing = self.chance.randrange(20)
        last = len(self.sent)
        if doing < 12:
            count = self.chance.randrange(4)
            entries = [self._entry(last + 1 + at) for at in range(count)]
            commit = last - self.chance.randrange(3)
            self.append(*entries, commit=commit)
        elif doing < 16:
            self.each("sync")
        elif doing == 16:
            self.each("tick", self.chance.choice((0.05, 0.1)))
        elif doing == 17:
            heartbeat = Heartbeat(2, NODE, 1, epoch=0, commit=self.commit, round=0)
            data = raft_codec.encode(heartbeat)
            self.each("hear", 2, Consensus(1), data)
        elif doing == 18:
            self.compare()
        else:
            # What is sent again, or was never sent.
            self.sent, kept = self.sent[: max(1, last - 2)], self.sent
            self.append(*kept[len(self.sent) :])
        if self.chance.random() < 0.8:
            self.each("turn")


def _play(walk: Leading | Following, steps: int) -> None:
    for _ in range(steps):
        walk.step()
    walk.each("turn")
    walk.each("sync")
    walk.each("turn")
    walk.compare()
    laned, plain = walk.both
    assert laned.stored() == plain.stored() == plain.entries()
    assert laned.taken > steps // 4
    assert plain.taken == 0


@pytest.mark.parametrize("seed", range(20))
def test_a_leader_does_what_python_does(seed: int) -> None:
    walk = Leading(seed)
    _play(walk, 400)
    [log] = walk.both[1].member.group.repository.state.logs.values()
    assert log.version > 20


@pytest.mark.parametrize("seed", range(20))
def test_a_follower_does_what_python_does(seed: int) -> None:
    walk = Following(seed)
    _play(walk, 400)
    assert walk.both[0].member.group.raft.core.log.applied > 100


def test_who_waits_for_news_does_not_wait_for_cuts() -> None:
    """Nodes that are no voters, and many clients, always wait for news."""
    walk = Leading(1)
    member = walk.both[0]
    answers: list[object] = []

    def ask(*, linearizable: bool) -> None:
        message = GetMetadata(1 << 40, 60_000, linearizable)
        member.member.read(message, member.now, answers.append)
        member.turn()

    ask(linearizable=False)
    assert member.member.lane_writes > 0
    ask(linearizable=True)
    assert member.member.lane_writes == 0, "it is not confirmed that this node leads"
    for node in OTHERS:
        heard = HeartbeatResponse(node, NODE, walk.core.term, epoch=0, round=1)
        member.hear(node, Consensus(1), raft_codec.encode(heard))
    member.turn()
    assert member.member.lane_writes > 0
    assert answers == []
