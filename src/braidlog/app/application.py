"""An application as a program uses it: what it is, and the ways to open it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.succession import AFTER_S
from braidlog.app.host.host import AsyncHost, open_host
from braidlog.app.host.watchdog import WATCHDOG_S

if TYPE_CHECKING:
    from pathlib import Path
    from ssl import SSLContext

    from braidlog.app.fingerprint import EnvironmentRule
    from braidlog.app.host.cluster_host import ClusterHost
    from braidlog.app.host.host import Host
    from braidlog.app.log.stop import Stop
    from braidlog.app.snapshots.policy import SnapshotSettings
    from braidlog.client.settings import ClientSettings

__all__ = ["Application"]


class Application(ApplicationDefinition):
    """Procedures over a database of their own, which survives by replay.

    ``partitions`` is fixed for the life of the application: calls of one partition are
    executed one after the other, and each partition has its own database. ``schema`` is
    SQL, one text or its steps: a later version may append steps, which are executed on
    every partition at one position of the log. ``results_kept`` says how many calls a
    partition remembers, so that a retry gets the first answer. ``packages`` names
    installed packages whose versions procedures depend on.
    """

    def open(self, path: str | Path, **options: Any) -> Host:
        """Open a directory with the log and the state, creating it if there is none.

        ``snapshots`` are `SnapshotSettings`; other options are those of
        `braidlog.app.host.host.open_host` and of `braidlog.open`. Returns when all of
        the log is applied. See `braidlog.app.host.host.Host`.
        """
        return open_host(self, path, **options)

    def open_async(self, path: str | Path, **options: Any) -> AsyncHost:
        """Open it for asyncio, with ``async with``; as `open`."""
        return AsyncHost(self, path, options)

    def open_cluster(
        self,
        seeds: str | Iterable[str],
        directory: str | Path,
        *,
        log: str = "",
        active: bool = True,
        streams: int = 4,
        join: str | Iterable[str] = (),
        token: str = "",
        ssl: SSLContext | None = None,
        settings: ClientSettings | None = None,
        environment: EnvironmentRule = "refuse",
        snapshots: SnapshotSettings | None = None,
        watchdog: float | None = WATCHDOG_S,
        promote_after: float | None = AFTER_S,
        stop: Stop | None = None,
    ) -> ClusterHost:
        """Open a host over a log of a cluster, with its state in ``directory``.

        ``seeds`` are addresses of nodes; the ``log`` (named like the application unless
        said) is made with ``streams`` if there is none. Any number of hosts may share
        it; the last one that was opened ``active`` is, the others stand by. A host
        whose directory is empty, or too old for the log, takes the state of a host
        that listens at one of the addresses ``join``. ``environment``, ``watchdog`` and
        ``snapshots`` as `open`: each host takes its own, and the active one trims the
        log to them. A standby makes itself the active host when that was silent for
        ``promote_after`` seconds, more than 4; None leaves it to `ClusterHost.promote`.
        Another thread may end a long opening by ``stop``: what was executed is stored.

        Raises:
            TrimmedError: the log begins behind the state, and there is none to take.
            LockedError: another host has the directory open.
            ApplicationMismatchError: the log is of another application.
            StateDamagedError: a database is damaged.
            UnavailableError: the system does not let a file be read or written:
                ``path``.
            DeadlineError: no node answered.
            ClosedError: it was told to ``stop``.
        """
        from braidlog.app.caller.caller import connect
        from braidlog.app.host.cluster_host import open_cluster_host
        from braidlog.client.client import connect_async

        addresses = [join] if isinstance(join, str) and join else list(join)
        others = None
        if addresses:
            others = connect(
                ",".join(addresses), application=self.name, token=token, ssl=ssl
            )
        return open_cluster_host(
            self,
            lambda: connect_async(seeds, token=token, ssl=ssl, settings=settings),
            directory,
            log=log,
            active=active,
            streams=streams,
            others=others,
            environment=environment,
            snapshots=snapshots,
            watchdog=watchdog,
            promote_after=promote_after,
            stop=stop,
        )
