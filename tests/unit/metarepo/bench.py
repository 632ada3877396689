"""Short ways to build a repository in a given state."""

from __future__ import annotations

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.machine.repository import Repository
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.messages import LogCut, Report, StreamReport, StreamRun
from braidlog.wire.results import Refused, Result

LOG = b"l" * 16


class Bench:
    """A repository, and a collector that believes what it is told."""

    def __init__(self, nodes: int = 3) -> None:
        self.repository = Repository()
        self.collector = Collector()
        self.reports = 0
        for node in range(1, nodes + 1):
            self.do(commands.RegisterNode(node, f"host:{node}", 1))

    def do(self, command: Command, call: bytes = b"") -> Result:
        index = self.repository.index + 1
        return self.repository.apply(index, commands.encode_call(command, call))

    def refused(self, command: Command) -> Refused:
        """Execute what has to be refused, and see that nothing changes."""
        before = self.repository.snapshot()
        index = self.repository.index
        result = self.do(command)
        assert isinstance(result, Refused)
        self.repository.state.index = index
        assert self.repository.snapshot() == before
        return result

    def create(
        self, *placement: tuple[int, ...], replication: int = 3, fewest: int = 1
    ) -> None:
        made = self.do(
            commands.CreateLog(
                LOG,
                "log",
                len(placement),
                replication,
                fewest,
                placement=placement,
            )
        )
        assert not isinstance(made, Refused), made

    def tell(
        self,
        node: int,
        stream: int,
        end: int,
        *,
        epoch: int = 1,
        version: int = 0,
        committed: int = 1,
        state: ReplicaState = ReplicaState.RUNNING,
        damaged: bool = False,
    ) -> None:
        self.reports += 1
        told = StreamReport(stream, epoch, version, committed, end, state, damaged)
        others = self.collector.streams(node) | {stream: told}
        assert self.collector.take(
            Report(node, 1, self.reports, True, tuple(others.values()))
        )

    def cut(self, dead: tuple[int, ...] = ()) -> LogCut | None:
        """Make a cut and apply it."""
        data = self.collector.cut(self.repository.state, dead=dead)
        if data is None:
            return None
        index = self.repository.index + 1
        self.collector.proposed(index)
        made = cut_of(data)
        result = self.do(made)
        self.collector.settled(index, refused=isinstance(result, Refused))
        assert not isinstance(result, Refused), result
        return made.cuts[0]


def cut_of(data: bytes) -> commands.Cut:
    """Return the cut that a call is, and see that it is encoded as all calls are."""
    call = commands.decode_call(data)
    assert isinstance(call.command, commands.Cut)
    assert commands.encode_call(call.command) == data
    return call.command


def one_cut(
    version: int, *runs: tuple[int, int, int, int], epoch: int = 1
) -> commands.Cut:
    """Make a cut of (stream, LLSN, GLSN, length)."""
    made = tuple(StreamRun(*run, epoch) for run in runs)
    end = runs[-1][2] + runs[-1][3] - 1
    return commands.Cut((LogCut(LOG, version, end, made),))
