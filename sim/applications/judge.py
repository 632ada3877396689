"""After the storm: all hosts, all snapshots and a replay from zero have one state."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from braidlog.app.application import Application
from braidlog.app.execution.executor import Executor
from braidlog.app.snapshots.files import SnapshotFiles
from braidlog.app.state.sqlite import SqliteState
from sim.applications.disk import HostDisk
from sim.applications.ledger import Model, Record
from sim.errors import ViolationError

__all__ = ["check_accounts", "check_snapshots", "replayed"]


def replayed(
    bank: Application, records: Sequence[Record], directory: Path
) -> list[bytes]:
    """Return the state hashes after the records, executed on what the directory has.

    Raises:
        ViolationError: an outcome is not that of the hosts.
    """
    state = SqliteState(directory, bank.partitions, unsynced=True)
    try:
        executor = Executor(bank, state)
        executor.feed(records[executor.position :])
        executor.commit(everywhere=True)
        if executor.shared.mismatches or executor.stopped(None) is not None:
            raise ViolationError(f"a replay differs: {executor.stopped(None)}")
        return _hashes(state)
    finally:
        state.close()


def _hashes(state: SqliteState) -> list[bytes]:
    views = [partition.view() for partition in state.partitions]
    found = [view.hash() for view in views]
    for view in views:
        view.close()
    return found


def check_accounts(directory: Path, partitions: int, model: Model) -> None:
    """Compare the accounts in a directory with those of the model.

    Raises:
        ViolationError: money came or went.
    """
    state = SqliteState(directory, partitions)
    found: dict[int, int] = {}
    for partition in state.partitions:
        view = partition.view()
        found.update(view.handle.execute("SELECT id, balance FROM account"))
        view.close()
    state.close()
    if found != model.balances:
        raise ViolationError(f"accounts are {found}, not {model.balances}")


def check_snapshots(
    bank: Application,
    records: Sequence[Record],
    name: str,
    disk: HostDisk,
    expected: Sequence[bytes],
    scratch: Path,
) -> int:
    """Restore each snapshot that a host lists, and replay what came after it.

    Raises:
        ViolationError: that gives another state.
    """
    copy = scratch / name
    disk.copy(copy)
    files = SnapshotFiles(copy / "snapshots")
    listed = files.listed()
    for snapshot in listed:
        where = scratch / f"{name}-{snapshot.number}"
        state = SqliteState(where, bank.partitions)
        facts = files.verify(snapshot, state.hash_of)
        for number, (file, *_) in enumerate(facts["files"]):
            state.restore(number, files.directory(snapshot.number) / file)
        state.close()
        if replayed(bank, records, where) != list(expected):
            text = f"snapshot {snapshot.number} of {name} leads to another state"
            raise ViolationError(text)
        shutil.rmtree(where)
    files.close()
    shutil.rmtree(copy)
    return len(listed)
