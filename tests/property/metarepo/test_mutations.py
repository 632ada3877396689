"""Bugs that are planted have to be found by the simulation."""

from collections.abc import Callable
from typing import Any

import pytest

from braidlog.metarepo.leader import leadership
from braidlog.metarepo.leader.publisher import Publisher
from braidlog.metarepo.leader.repair import Repair
from braidlog.metarepo.machine import cuts, streams
from braidlog.metarepo.machine.errors import RepositoryInvariantError
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import State, StreamState
from property.metarepo.ends import Ends
from property.metarepo.simulation import Simulation

Mutation = Callable[[pytest.MonkeyPatch], None]


def counts_ended_epochs(patch: pytest.MonkeyPatch) -> None:
    class Wrong(Ends):
        def _end(self, node: int, stream: StreamState) -> int | None:
            report = self.report(node, stream.stream)
            return report.end if report else None

    patch.setattr(leadership, "Collector", Wrong)


def takes_the_longest(patch: pytest.MonkeyPatch) -> None:
    class Wrong(Ends):
        def _common_end(self, stream: StreamState) -> int:
            return max(self._end(node, stream) or 0 for node in stream.replicas)

    patch.setattr(leadership, "Collector", Wrong)


def leaves_out_one_replica(patch: pytest.MonkeyPatch) -> None:
    class Wrong(Ends):
        def _common_end(self, stream: StreamState) -> int:
            ends = sorted(self._end(node, stream) or 0 for node in stream.replicas)
            return ends[-2] if len(ends) > 1 else ends[0]

    patch.setattr(leadership, "Collector", Wrong)


def believes_every_cut(patch: pytest.MonkeyPatch) -> None:
    class Wrong(Ends):
        def proposed(self, index: int) -> None:
            super().proposed(index)
            self._committed, self._logs = {}, {}

    patch.setattr(cuts, "_require_cut", lambda *_: None)
    patch.setattr(leadership, "Collector", Wrong)


def forgets_in_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    restore = Repository.restore

    def restored(self: Repository, snapshot: bytes) -> None:
        restore(self, snapshot)
        self.state.calls = {}

    patch.setattr(Repository, "restore", restored)


def begins_an_epoch_too_early(patch: pytest.MonkeyPatch) -> None:
    begin = streams.begin

    def begun(state: State, index: int, stream: StreamState, status: Any) -> None:
        begin(state, index, stream, status)
        stream.start = max(1, stream.start - 1)

    patch.setattr(streams, "begin", begun)


def never_replaces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Repair, "_grow", lambda *_: None)
    patch.setattr(Repair, "_promote", lambda *_: None)


def never_tells_to_let_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Publisher, "_unwanted", lambda *_: iter(()))


@pytest.mark.parametrize(
    "mutation",
    [
        counts_ended_epochs,
        takes_the_longest,
        leaves_out_one_replica,
        believes_every_cut,
        forgets_in_a_snapshot,
        begins_an_epoch_too_early,
        never_replaces,
        never_tells_to_let_go,
    ],
    ids=lambda mutation: mutation.__name__,
)
def test_a_planted_bug_is_found(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(4):
        try:
            Simulation(seed, faults=200, patience=2).play()
        except (AssertionError, RepositoryInvariantError):
            return
    pytest.fail("nobody noticed")
