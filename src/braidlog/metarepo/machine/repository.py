"""The metadata repository: a state machine whose only input is the log.

*Theory of operation.* `apply` takes one committed entry after the other and returns a
result; the same entries give the same state and the same results on every node. What
cannot be done is refused: that is a result too, and changes nothing. A snapshot is the
state as bytes; a repository that is restored from it goes on as the one it was taken
of.

*Invariants.* Those of `braidlog.metarepo.machine.state`. Indexes rise. A call identity
is executed once as long as it is among the last `CALLS_MAX`, and their results have not
more than `CALL_BYTES_MAX`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from braidlog.errors import CorruptionError, LogError
from braidlog.metarepo.machine import (
    adoption,
    cursors,
    cuts,
    faults,
    logs,
    nodes,
    readmission,
    retention,
    shards,
    spread,
    streams,
    tables,
    views,
)
from braidlog.metarepo.machine.errors import RepositoryInvariantError, fail
from braidlog.metarepo.machine.state import (
    CALL_BYTES_MAX,
    CALLS_MAX,
    State,
    decode_state,
    encode_state,
)
from braidlog.wire import commands
from braidlog.wire.messages import LogCut, LogInfo, NodeInfo, StreamConfig
from braidlog.wire.results import Refused, Result, decode_result, encode_result

_FORMAT: Final = b"BMR1"

_Apply = Callable[[State, int, Any], Result]


def _either(of_stream: _Apply, of_shard: _Apply) -> _Apply:
    """Return what applies a command that shards have as well as streams."""

    def apply(state: State, index: int, command: Any) -> Result:
        known = command.stream in state.shards
        return (of_shard if known else of_stream)(state, index, command)

    return apply


# Annotated loosely: each function takes the command that it stands under.
_APPLY: Final[dict[type, _Apply]] = {
    commands.RegisterNode: nodes.register,
    commands.DrainNode: nodes.drain,
    commands.RemoveNode: nodes.remove,
    commands.SetVoter: nodes.set_voter,
    commands.ReadmitNode: readmission.readmit,
    commands.AdmitNode: readmission.admit,
    commands.CreateLog: logs.create,
    commands.AlterLog: logs.alter,
    commands.SetStreams: spread.set_streams,
    commands.DeleteLog: logs.delete,
    commands.Trim: logs.trim,
    commands.Retain: retention.retain,
    commands.Cut: cuts.cut,
    commands.Reconfigure: streams.reconfigure,
    commands.AddLearner: streams.add_learner,
    commands.DropLearner: _either(streams.drop_learner, shards.give_up_move),
    commands.MoveReplica: _either(streams.move, shards.move),
    commands.Seal: streams.seal,
    commands.Unseal: streams.unseal,
    commands.SetCursor: cursors.set_cursor,
    commands.DeleteCursor: cursors.delete_cursor,
    commands.GetCursors: cursors.get_cursors,
    commands.ChangeFaults: faults.change,
    commands.OfferReplicas: adoption.offer,
    commands.ChangeTables: tables.change,
    commands.PlaceHosts: tables.place_hosts,
    commands.SettleHost: tables.settle_host,
    commands.ReportShards: shards.note,
    commands.PlaceShard: shards.place,
}


class Repository:
    """The replicated state; see the module."""

    def __init__(self, snapshot: bytes = b"") -> None:
        """Begin empty, or where a snapshot was taken.

        Raises:
            CorruptionError: it is no snapshot.
        """
        self.state = State()
        self._sized = self.state.calls
        self._calls_size = 0
        if snapshot:
            self.restore(snapshot)

    @property
    def index(self) -> int:
        """Return the last entry that is applied."""
        return self.state.index

    @property
    def revision(self) -> int:
        """Return the last entry that changed more than a cut does."""
        return self.state.revision

    def apply(self, index: int, data: bytes) -> Result:
        """Execute an entry of the log; return what it came to.

        Raises:
            RepositoryInvariantError: the state is broken; nothing may follow.
        """
        if index <= self.state.index:
            fail(f"entry {index} behind {self.state.index}")
        self.state.index = index
        try:
            call = commands.decode_call(data)
        except LogError as error:
            return Refused(error.code, error.message)
        if call.call and (known := self.result_of(call.call)) is not None:
            return known
        result: Result
        try:
            result = _APPLY[type(call.command)](self.state, index, call.command)
        except RepositoryInvariantError:
            raise
        except LogError as error:
            result = Refused(error.code, error.message)
        if call.call:
            self._remember(call.call, result)
        return result

    def result_of(self, call: bytes) -> Result | None:
        """Return the result of a call that was executed; None if not known."""
        if not call or call not in self.state.calls:
            return None
        return decode_result(self.state.calls[call])

    def _remember(self, call: bytes, result: Result) -> None:
        calls = self.state.calls
        if calls is not self._sized:
            # A snapshot, or a rescue, brought others.
            self._sized, self._calls_size = calls, sum(map(len, calls.values()))
        calls[call] = encode_result(result)
        self._calls_size += len(calls[call])
        while len(calls) > CALLS_MAX or self._calls_size > CALL_BYTES_MAX:
            self._calls_size -= len(calls.pop(next(iter(calls))))

    def skip(self, index: int) -> None:
        """Note an entry that is not for the state, such as one of the membership."""
        if index <= self.state.index:
            fail(f"entry {index} behind {self.state.index}")
        self.state.index = index

    # --- snapshots

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        return _FORMAT + encode_state(self.state)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state by that of a snapshot.

        Raises:
            CorruptionError: it is none; the state is as before.
        """
        if snapshot[: len(_FORMAT)] != _FORMAT:
            raise CorruptionError("not a snapshot of a metadata repository")
        self.state = decode_state(memoryview(snapshot)[len(_FORMAT) :])

    # --- views

    def config(self, stream: int) -> StreamConfig:
        """Return what the replicas of a stream have to be.

        Raises:
            NotFoundError: there is no such stream.
        """
        return views.config(self.state, stream)

    def streams_of(self, node: int) -> list[int]:
        """Return the streams that a node has a replica of, or learns."""
        return views.streams_of(self.state, node)

    def cuts_since(
        self, log: bytes, version: int, count: int
    ) -> tuple[LogCut, ...] | None:
        """Return the cuts that follow a version; None if the first is forgotten."""
        return cuts.cuts_since(self.state, log, version, count)

    def nodes(
        self,
        alive: Callable[[int], bool],
        voters: frozenset[int],
        silent_ms: Callable[[int], int],
        slow_ms: Callable[[int], int] = lambda _: 0,
    ) -> tuple[NodeInfo, ...]:
        """Return the nodes as clients see them."""
        return views.nodes(self.state, alive, voters, silent_ms, slow_ms)

    def logs(self, judge: views.Judge) -> tuple[LogInfo, ...]:
        """Return the logs as clients see them."""
        return views.logs(self.state, judge)
