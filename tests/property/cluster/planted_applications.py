"""Bugs of hosts, each a small patch of the real code that the simulation has to find.

As `planted` for the cluster below them. The seeds are those with which each was found
when it was tried; others are tried behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from sim.applications.storms import STORMS
from sim.faults import Storm

from braidlog import durable
from braidlog.app.determinism.codec import encode
from braidlog.app.execution.entries import CallId, Command
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.execution.partition import Partition
from braidlog.app.execution.state import Saved
from braidlog.app.host.role import Role
from braidlog.app.host.runner import Runner
from braidlog.app.log.clustered import ClusteredLog
from braidlog.app.procedure import Procedure
from braidlog.app.snapshots.files import Snapshot, SnapshotFiles
from braidlog.app.snapshots.snapshotter import Snapshotter
from braidlog.app.state import sqlite
from braidlog.app.state.sqlite_partition import SqlitePartition
from braidlog.store.node_store import NodeStore

__all__ = ["PLANTED", "Planted"]

Patch = pytest.MonkeyPatch

_CALM = STORMS["calm"]
_KILLS = replace(STORMS["kills"], seconds=3.0)
_BLACKOUTS = replace(STORMS["blackouts"], seconds=3.0)
_FENCES = replace(STORMS["fences"], seconds=3.0)


@dataclass(frozen=True, slots=True)
class Planted:
    """One bug, and where to look for it."""

    plant: Callable[[Patch], None]
    storm: Storm
    seeds: Sequence[int]
    # Whether finding it takes too many seeds for each change.
    slow: bool = False


def ack_before_durable(patch: Patch) -> None:
    """A host answers a deposit as soon as it was handed to the log."""
    right = Runner.submit

    def wrong(
        runner: Runner, procedure: Procedure, arguments: Any, call: CallId, waiter: Any
    ) -> None:
        right(runner, procedure, arguments, call, waiter)
        if procedure.name == "deposit":
            account, amount = arguments
            count = runner.application.partitions
            (number,) = procedure.partitions(arguments, count) or []
            view = runner._state.partitions[number].view()
            there = view.handle.value(_BALANCE, (account,)) or 0
            view.close()
            body = encode(there + amount)
            early = Outcome(1, call, procedure.name, Status.OK, body, b"")
            runner.calls.settle([early])

    patch.setattr(Runner, "submit", wrong)


_BALANCE = "SELECT balance FROM account WHERE id = ?"


def ack_before_dependency(patch: Patch) -> None:
    """A read is answered from what is executed, not from what was committed before."""
    patch.setattr(Runner, "end", lambda runner, timeout=None: runner.position + 1)


def dedupe_lost(patch: Patch) -> None:
    """A host that starts again remembers no calls."""
    patch.setattr(SqlitePartition, "kept", lambda partition: [])


def result_in_another_transaction(patch: Patch) -> None:
    """The results are committed behind the effects that they are of."""
    right = SqlitePartition.commit

    def wrong(partition: SqlitePartition, saved: Saved) -> None:
        late: Sequence[Any] = getattr(partition, "late", ())
        partition.late = saved.results  # type: ignore[attr-defined]
        right(partition, replace(saved, results=late))

    patch.setattr(SqlitePartition, "commit", wrong)


def write_sets_dropped_early(patch: Patch) -> None:
    """What other partitions may lack goes as soon as they have committed it."""
    right = Executor.commit

    def wrong(executor: Executor, *, everywhere: bool = False) -> None:
        right(executor, everywhere=everywhere)
        executor._settled = executor.position

    patch.setattr(Executor, "commit", wrong)


def write_sets_on_the_first_only(patch: Patch) -> None:
    """Only the first partition of a command has what the others need."""

    def wrong(
        executor: Executor, books: list[Partition], lacking: Any, at: int, stored: bytes
    ) -> None:
        if books[0] in lacking:
            books[0].store_waiting(at, stored)
        executor._unsettled += 1

    patch.setattr(Executor, "_store_copies", wrong)


def listed_before_verified(patch: Patch) -> None:
    """A snapshot is listed as it was written, whatever is on the disk."""

    def unread(files: SnapshotFiles, *_: object) -> dict[str, Any]:
        return {"files": []}

    patch.setattr(SnapshotFiles, "_verified", unread)
    patch.setattr(SnapshotFiles, "_verify_own", unread)
    # Often, so that few seeds are enough.
    patch.setattr("sim.applications.disk._ROTS", 0.3)


def trimmed_before_listed(patch: Patch) -> None:
    """The log is cut to where the host is, not to where its snapshots are."""
    right = Snapshotter._trim

    def wrong(keeper: Snapshotter, target: int, kept: list[Snapshot]) -> None:
        assert keeper._runner is not None
        right(keeper, target, kept)
        if keeper._runner.role.active:
            keeper._log.trim(keeper._runner.position)

    patch.setattr(Snapshotter, "_trim", wrong)


def snapshot_not_synced(patch: Patch) -> None:
    """The directory of a snapshot is renamed and its name is not made durable."""
    wrong = SimpleNamespace(**(vars(durable) | {"sync": lambda path: None}))
    patch.setattr("braidlog.app.snapshots.files.durable", wrong)


def fencing_ignored(patch: Patch) -> None:
    """Who was the active host once goes on as such."""

    def active(role: Role) -> bool:
        return role.claimed > 0

    patch.setattr(Role, "active", property(active))


def skips_a_record(patch: Patch) -> None:
    """A host loses the first record of what it reads at a time, now and then."""
    right = ClusteredLog._put

    async def wrong(log: ClusteredLog, chunk: Sequence[Any]) -> int:
        lost = len(chunk) > 1 and chunk[0].position % 3 == 0
        return await right(log, chunk[1:] if lost else chunk)

    patch.setattr(ClusteredLog, "_put", wrong)


def executes_as_it_is_grouped(patch: Patch) -> None:
    """What a command sees depends on how many were executed before it in one go."""
    right = Executor._command

    def wrong(
        executor: Executor, position: int, timestamp: int, entry: Command, books: Any
    ) -> Any:
        if entry.procedure == "deposit" and executor.position - executor._settled > 25:
            account, amount = entry.arguments
            entry = entry._replace(arguments=[account, amount + 1])
        return right(executor, position, timestamp, entry, books)

    patch.setattr(Executor, "_command", wrong)


def unsynced_databases(patch: Patch) -> None:
    """A host says that its state is durable, and nobody synced it."""
    patch.setattr(sqlite.SqliteState, "sync", lambda state: None)


def watermark_rule_off(patch: Patch) -> None:
    """Nodes place whatever comes; no stream leaves the order that holds others back."""
    right = NodeStore.__init__

    def wrong(store: NodeStore, path: Any, **options: Any) -> None:
        right(store, path, **(options | {"order_bytes_max": 1 << 40}))

    patch.setattr(NodeStore, "__init__", wrong)


PLANTED: Mapping[str, Planted] = {
    "ack before the command is durable": Planted(ack_before_durable, _CALM, (1,)),
    "read before what it depends on": Planted(
        ack_before_dependency, _FENCES, (18, 26, 9)
    ),
    "dedupe lost": Planted(dedupe_lost, _KILLS, ()),
    "result in another transaction": Planted(result_in_another_transaction, _KILLS, ()),
    "write sets dropped too early": Planted(write_sets_dropped_early, _BLACKOUTS, (2,)),
    "write sets on the first partition only": Planted(
        write_sets_on_the_first_only, _BLACKOUTS, (107, 46, 64, 66, 136)
    ),
    "snapshot listed before it is verified": Planted(listed_before_verified, _CALM, ()),
    "log cut before the snapshot": Planted(trimmed_before_listed, _CALM, (1,)),
    "snapshot not durable": Planted(snapshot_not_synced, _CALM, (1,)),
    "fencing ignored": Planted(fencing_ignored, _CALM, (2,)),
    "outcomes differ between hosts": Planted(executes_as_it_is_grouped, _KILLS, ()),
    "record lost by a reader": Planted(skips_a_record, _CALM, (1,)),
    "state not durable": Planted(unsynced_databases, _BLACKOUTS, (10, 32)),
    "watermark rule off": Planted(watermark_rule_off, _FENCES, (7, 10)),
}
