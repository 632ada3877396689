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


class Application(ApplicationDefinition):
    """Procedures over a database of their own, whose calls are a log.

    A call is durable when it is in the log. The database can always be rebuilt: from
    the log, or from a snapshot and the log after it.

    ``partitions`` (1 to 4096) is the number that a new log begins with; `Host.resize`
    changes it. Each partition has its own database, and its calls are executed one
    after the other, in the order of the log. ``row_keys`` names for each table the
    column with the partition key of its rows, or None if every partition has the same
    rows; only another number of partitions needs it. ``schema`` is SQL: one text, or a
    list of steps. A later version may append steps, which every partition executes at
    the same position of the log. ``results_kept`` is the number of calls that a
    partition remembers: a retry of one of these gets the first answer. ``packages``
    names installed packages on whose versions procedures depend; these versions are
    compared as the version of Python is.
    """

    def open(self, path: str | Path, **options: Any) -> Host:
        """Open a directory with log, state and snapshots; create it if there is none.

        Options are those of `braidlog.app.host.host.open_host`, which lists the errors,
        and those of `braidlog.open`. Returns when all of the log is executed. One
        process at a time can have the directory open. Close the `Host`, or use
        ``with``.
        """
        return open_host(self, path, **options)

    def open_async(self, path: str | Path, **options: Any) -> AsyncHost:
        """Open the directory for asyncio, with ``async with``; otherwise as `open`."""
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

        ``seeds`` are addresses of nodes. ``log`` is the name of the log, by default
        that of the application; a missing log is created with ``streams`` streams. Any
        number of hosts can share the log. One of them is active and executes calls; the
        last one opened with ``active`` becomes it, and the others stand by.

        If the directory is empty or too old for the log, the host copies the state of
        a host at one of the addresses ``join``. A standby takes over when the active
        host was silent for ``promote_after`` seconds (more than 4); with None only
        `ClusterHost.promote` makes it active. ``environment`` and ``watchdog`` are
        those of `braidlog.app.host.host.open_host`. ``snapshots`` too: each host takes
        its own, and the active one trims the log to them. Another thread can end a
        long opening with ``stop``; what was executed until then is stored.

        Raises:
            TrimmedError: the log was trimmed beyond the state, and no host in ``join``
                has a newer one.
            LockedError: another host has the directory open.
            ApplicationMismatchError: the log belongs to another application.
            EnvironmentMismatchError: commands to execute were logged under other
                versions.
            StateDamagedError: a database is damaged.
            UnavailableError: a file cannot be read or written; see ``path``.
            DeadlineError: no node answered.
            ClosedError: ``stop`` was set.
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
