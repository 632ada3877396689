"""Opening a host over a cluster log: its directory, its cursor, its first state."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog import durable
from braidlog.app.errors import ApplicationMismatchError
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.succession import AFTER_S, Succession, View
from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.host.host import Host
from braidlog.app.host.lease import LEASE_S, SNAPSHOT_LEASE_S, CursorLease
from braidlog.app.host.promotion import Promoter
from braidlog.app.host.runner import Runner
from braidlog.app.host.watchdog import WATCHDOG_S
from braidlog.app.log.clustered import ClusteredLog
from braidlog.app.log.cursors import HOST, signs
from braidlog.app.log.stop import Stop
from braidlog.app.snapshots.files import SnapshotFiles, close_all
from braidlog.app.snapshots.policy import SnapshotSettings
from braidlog.app.snapshots.restore import position_of
from braidlog.app.snapshots.snapshotter import Snapshotter
from braidlog.app.snapshots.transfer import StateCopies, make_state
from braidlog.app.state.failures import breakage_at
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import CorruptionError, LockedError
from braidlog.paths import local_path

if TYPE_CHECKING:
    from braidlog.app.caller.caller import Caller
    from braidlog.client.client import AsyncClient

_STATE: Final = "state"
_SNAPSHOTS: Final = "snapshots"
_COPY: Final = "copy"
_INCOMING: Final = "incoming"
_STREAMS: Final = 4


class ClusterHost(Host):
    """A host whose log is in a cluster; other hosts may share it. See `Host`.

    Calls of one thread are executed in their order if they belong to one partition;
    those of different partitions may change places, unless one waits for the other.
    """

    def __init__(
        self,
        runner: Runner,
        snapshots: Snapshotter,
        cursor: CursorLease,
        copies: StateCopies,
        promoter: Promoter,
        stack: ExitStack,
    ) -> None:
        """Wrap a runner; users call `Application.open_cluster`."""
        super().__init__(runner, snapshots, promoter)
        self.cursor = cursor
        self.copies = copies
        self._stack = stack

    @property
    def active(self) -> bool:
        """Whether this host is the active one."""
        return self.runner.role.active

    def promote(self, timeout: float | None = None) -> None:
        """Make this host the active one; see `Runner.promote`."""
        self.runner.promote(timeout)

    def close(self) -> None:
        """Wait for the calls on their way, store everything, release the directory."""
        self._stack.close()


def open_cluster_host(
    application: ApplicationDefinition,
    make: Callable[[], AsyncClient],
    directory: str | os.PathLike[str],
    *,
    log: str = "",
    active: bool = True,
    streams: int = _STREAMS,
    others: Caller | None = None,
    environment: EnvironmentRule = "refuse",
    snapshots: SnapshotSettings | None = None,
    watchdog: float | None = WATCHDOG_S,
    promote_after: float | None = AFTER_S,
    stop: Stop | None = None,
) -> ClusterHost:
    """Open a directory beside a log of a cluster; see `Application.open_cluster`."""
    where = local_path(directory, "the directory of a host").absolute()
    stop = stop or Stop()
    with breakage_at(where), ExitStack() as stack:
        durable.make_directory(where)
        stack.enter_context(_locked(where))
        name = log or application.name
        shared = ClusteredLog(make, name, streams=streams, stop=stop)
        stack.callback(shared.close)
        opening = stack.enter_context(ExitStack())
        opening.enter_context(stop.telling(shared.interrupt))
        identity = _identity(where, shared.identity)
        shared.latest()
        rule = None
        if promote_after is not None:
            rule = Succession(identity, promote_after)
        cursor = CursorLease(shared, f"{HOST}{identity.hex()}", shared.first)
        stack.callback(cursor.stop)
        files = SnapshotFiles(where / _SNAPSHOTS, host=identity.hex())
        stack.callback(files.close)
        count = application.partitions
        state_path, incoming = where / _STATE, where / _INCOMING
        make_state(state_path, incoming, count, files, shared, others, stop)
        state = SqliteState(state_path, count)
        stack.callback(state.close)
        keeper = Snapshotter(
            shared,
            state,
            files,
            snapshots or SnapshotSettings(),
            position_of(state),
            unpin=cursor.move,
            # Another host moves its cursor now and then, and one that is gone never.
            patience_s=LEASE_S,
            lease_s=SNAPSHOT_LEASE_S,
        )
        runner = Runner(
            application,
            shared,
            state,
            keeper,
            active=active,
            host=identity,
            environment=environment,
            watchdog=watchdog,
            stop=stop,
        )
        # From here on the runner closes log and state; both may be closed twice.
        stack.callback(runner.close)
        copies = StateCopies(runner, where / _COPY)
        stack.callback(copies.forget)
        promoter = _follow(stack, runner, shared, state, keeper, cursor, rule)
        opening.close()  # From here on `stop` stops nothing.
        host = ClusterHost(runner, keeper, cursor, copies, promoter, stack.pop_all())
    return host


def _follow(
    stack: ExitStack,
    runner: Runner,
    log: ClusteredLog,
    state: SqliteState,
    keeper: Snapshotter,
    cursor: CursorLease,
    rule: Succession | None,
) -> Promoter:
    """Begin what goes on beside the runner: the lease, snapshots, the succession."""
    stack.callback(cursor.stop)
    synced, leads = partial(_synced, runner, state), partial(_leads, runner)
    cursor.follow(synced, leads, keeper.renew)
    stack.callback(keeper.close)
    keeper.start(runner)
    promoter = Promoter(runner, rule, partial(_seen, log))
    stack.callback(promoter.close)
    return promoter


@contextlib.contextmanager
def _locked(where: Path) -> Iterator[None]:
    lock = os.open(where / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"another host has {where} open: stop it, or choose another directory"
            raise LockedError(msg, path=str(where)) from None
        yield
    finally:
        os.close(lock)


def _identity(where: Path, log: str) -> bytes:
    """Return the identity of the host, made at its first start.

    Raises:
        ApplicationMismatchError: the directory was made beside another log.
    """
    file = where / "host.json"
    if file.exists():
        try:
            known = json.loads(file.read_text())
            identity, beside = bytes.fromhex(known["host"]), known["log"]
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{file} does not hold the identity of a host: {error!r}"
            raise CorruptionError(msg, path=str(file)) from error
        if beside != log:
            msg = (
                f"the state in {where} was built from the log {beside}, but this "
                f"is the log {log}: choose another directory"
            )
            raise ApplicationMismatchError(msg, path=str(where))
        return identity
    identity = os.urandom(16)
    durable.replace(file, json.dumps({"host": identity.hex(), "log": log}).encode())
    return identity


def _leads(runner: Runner) -> bool:
    """Whether this is the active host and can go on as such."""
    sound = runner.failure is None and not runner.stopped_partitions()
    return sound and runner.role.active


def _seen(log: ClusteredLog, active: bytes, epoch: int) -> View:
    """Return what the cursors show of the hosts of a log."""
    return View(active, epoch, signs(log.cursor_rows(), time.time_ns() // 1000))


def _synced(runner: Runner, state: SqliteState) -> int:
    """Make the state durable, and return up to where it is."""
    image = runner.mark()
    with close_all(image.views):
        state.sync()
    return image.position
