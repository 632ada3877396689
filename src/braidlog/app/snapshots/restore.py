"""Bringing a state to where the log can go on from: its own, or a snapshot's.

*Invariant.* A state that was restored in part is restored again: the marker is there
from before the first file is touched until the last is in its place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from braidlog import durable
from braidlog.app.errors import ApplicationMismatchError, SnapshotDamagedError
from braidlog.app.execution.state import State
from braidlog.app.snapshots.files import Snapshot, SnapshotFiles
from braidlog.errors import CorruptionError, TrimmedError

_log = logging.getLogger(__name__)
_MARKER: Final = "RESTORING"


def position_of(state: State) -> int:
    """Return up to where every partition is, apart from those that are stopped."""
    found = [partition.load() for partition in state.partitions]
    going = [each.applied for each in found if each.stopped is None]
    return min(going) if going else max(each.applied for each in found)


def usable(snapshots: Sequence[Snapshot], first: int, end: int) -> list[Snapshot]:
    """Return those from which the log goes on without a gap, the newest first."""
    fitting = [each for each in snapshots if first <= each.position + 1 <= end]
    return sorted(fitting, key=lambda each: each.number, reverse=True)


def restore_if_needed(
    state: State,
    files: SnapshotFiles,
    identity: str,
    first: int,
    end: int,
    check: Callable[[], None] = lambda: None,
) -> Snapshot | None:
    """Restore the newest usable snapshot, if the state alone does not reach the log.

    A state without content takes one as well: that is quicker than the whole log. A
    damaged snapshot gives way to an older one, as long as the log reaches that.
    ``check`` is called before each file, and may raise what ends it.

    Raises:
        TrimmedError: no snapshot reaches the log.
        SnapshotDamagedError: those that do are damaged.
        ApplicationMismatchError: the snapshots are of another log.
        CorruptionError: the log ends before a snapshot: it lost its end.
    """
    _check_log(files.listed(), identity, end)
    marker = files.path / _MARKER
    position = position_of(state)
    own = not marker.exists() and position + 1 >= first
    if own and position > 0:
        return None
    damaged: SnapshotDamagedError | None = None
    for snapshot in usable(files.listed(), first, end):
        try:
            facts = files.verify(snapshot, state.hash_of, lambda *_: check())
        except SnapshotDamagedError as error:
            _log.warning("snapshot %d cannot be used: %s", snapshot.number, error)
            damaged = damaged or error
            continue
        _restore(state, files, snapshot, len(facts["files"]), marker, check)
        return snapshot
    if own:
        return None  # From the beginning of the log.
    reasons = _reasons(files.listed(), first, damaged)
    if damaged is not None:
        msg = f"no snapshot reaches the log, which begins at {first}: {reasons}"
        raise SnapshotDamagedError(msg, path=damaged.path)
    msg = f"the state ends at {position}, the log begins at {first}: {reasons}"
    raise TrimmedError(msg, first=first)


def forget_restore(files: SnapshotFiles) -> None:
    """Note that the state was replaced as a whole after a restore that did not end."""
    marker = files.path / _MARKER
    if marker.exists():
        marker.unlink()
        durable.sync(files.path)


def _check_log(listed: Sequence[Snapshot], identity: str, end: int) -> None:
    """Refuse snapshots that tell of another log: its positions mean nothing here."""
    for snapshot in listed:
        what = f"snapshot {snapshot.number}"
        if snapshot.log != identity:
            msg = f"{what} belongs to log {snapshot.log}, not to {identity}"
            raise ApplicationMismatchError(msg)
        if snapshot.position >= end:
            raise CorruptionError(
                f"{what} has position {snapshot.position}, which is beyond the "
                "end of the log"
            )


def _reasons(
    listed: Sequence[Snapshot], first: int, damaged: SnapshotDamagedError | None
) -> str:
    parts = [
        f"snapshot {each.number} ends at {each.position}"
        for each in listed
        if each.position + 1 < first
    ]
    if damaged is not None:
        parts.append(damaged.message)
    return "; ".join(parts) or "there is no snapshot that fits"


def _restore(
    state: State,
    files: SnapshotFiles,
    snapshot: Snapshot,
    count: int,
    marker: Path,
    check: Callable[[], None],
) -> None:
    marker.write_text(f"{snapshot.number}\n")
    durable.sync(marker)
    durable.sync(files.path)
    where = files.directory(snapshot.number)
    if count != len(state.partitions):
        state.begin_again(count)
    for partition in range(count):
        check()
        files.step("restore")
        state.restore(partition, where / f"partition-{partition:04}.db")
    files.step("restored")
    marker.unlink()
    durable.sync(files.path)
    _log.info(
        "restored the state from snapshot %d, as of position %d",
        snapshot.number,
        snapshot.position,
    )
