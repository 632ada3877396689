"""What every command gets: the data directory or the cluster, and where to print."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeAlias

import click

import braidlog
from braidlog.cli.command.failures import NOT_FOUND, USAGE, Problem
from braidlog.cli.command.target import Target
from braidlog.errors import NotFoundError
from braidlog.store.backend import holds_logs

if TYPE_CHECKING:
    from braidlog.client import Client, ClusterLog
    from braidlog.client.connection.look import Look
    from braidlog.sources.origin import Origin
    from braidlog.sources.source import LogSource

    Logs: TypeAlias = braidlog.Store | Client
    Log: TypeAlias = braidlog.Log | ClusterLog

NO_HOLES: Final = (
    "--skip-holes is for data directories only: nodes have no declared holes"
)


@dataclass(frozen=True, slots=True)
class Session:
    """The options that every command shares."""

    data: Path
    as_json: bool = False
    cluster: Target | None = None

    def logs(self) -> AbstractContextManager[Logs]:
        """Open the data directory read-only, or connect to the cluster."""
        return self.reader() if self.cluster is None else self.client()

    def changing(self, *, create: bool = False) -> AbstractContextManager[Logs]:
        """Open the data directory as its one writer, or connect to the cluster."""
        return self.writer(create=create) if self.cluster is None else self.client()

    def look(self) -> Look:
        """Look at the cluster, which takes two seconds at most.

        Raises:
            Problem: None was named, or no node says anything.
        """
        return self._named().look()

    def _named(self) -> Target:
        if self.cluster is None:
            raise Problem(
                "this command needs a cluster",
                "pass --cluster HOST:PORT, or set BRAIDLOG_CLUSTER",
                USAGE,
            )
        return self.cluster

    def client(
        self, *, timeout_s: float | None = None
    ) -> AbstractContextManager[Client]:
        """Connect to the cluster, whose answers may take `timeout_s`.

        Raises:
            Problem: None was named, or no node can be reached.
        """
        return self._named().connect(timeout_s=timeout_s)

    @contextmanager
    def source(
        self, log: str, *, archive: bool | str = False, skip_holes: bool = False
    ) -> Iterator[LogSource]:
        """Open a log for reading, in the data directory or the cluster.

        With ``archive`` what was trimmed is read there; `Origin` says how.

        Raises:
            Problem: Holes cannot be skipped in a cluster, or it cannot be reached.
            NotFoundError: There is no such log, or no archive.
        """
        from braidlog.sources.archived import with_archive
        from braidlog.sources.cluster import ClusterSource
        from braidlog.sources.directory import DirectorySource

        with ExitStack() as stack:
            found: LogSource
            if self.cluster is not None:
                if skip_holes:
                    raise click.UsageError(NO_HOLES)
                client = stack.enter_context(self.client())
                found = ClusterSource(client, log)
            else:
                self.require()
                found = DirectorySource(self.data, log, skip_holes=skip_holes)
            yield stack.enter_context(with_archive(found, archive))

    def origin(
        self, log: str, raw: Sequence[Path] = (), *, archive: bool | str = False
    ) -> Origin:
        """Return where a log is, for tasks; `source` opens it in this process."""
        from braidlog.sources.origin import Origin

        where: dict[str, Any]
        if raw:
            where = {"raw": tuple(str(path) for path in raw)}
        elif (target := self.cluster) is not None:
            authority = "" if target.authority is None else str(target.authority)
            where = {"cluster": target.seeds, "ca": authority, "token": target.token}
        else:
            self.require()
            where = {"path": str(self.data)}
        return Origin(log, include_archive=archive, **where)

    def reader(self) -> braidlog.Store:
        """Open the data directory read-only; any number of processes may."""
        self.require()
        return braidlog.open(self.data, read_only=True)

    def writer(self, *, create: bool = False) -> braidlog.Store:
        """Open the data directory as its one writer; make it only if `create`."""
        if not create:
            self.require()
        elif not self.data.absolute().parent.is_dir():
            where = self.data.absolute()
            msg = f"{where} cannot be created, because {where.parent} does not exist"
            raise Problem(msg, f"check --data, or `mkdir -p {where.parent}`", NOT_FOUND)
        return braidlog.open(self.data)

    def require(self) -> None:
        """Refuse a directory that is not there.

        Raises:
            Problem: There is nothing to open.
        """
        if not self.has_data():
            where = self.data.absolute()
            raise Problem(
                f"no Braidlog data in {where}"
                if where.is_dir()
                else f"no data directory at {where}",
                "pass --data DIR or set BRAIDLOG_DATA; `braidlog log create NAME` "
                "creates one",
                NOT_FOUND,
            )

    def has_data(self) -> bool:
        """Tell whether the data directory is one."""
        return holds_logs(self.data)

    @contextmanager
    def files(self) -> Iterator[None]:
        """Look into the files without opening the data directory."""
        self.require()
        try:
            yield
        except NotFoundError as error:
            raise Problem(
                error.message,
                "`braidlog inspect segments` and `braidlog log list` show what exists",
                NOT_FOUND,
            ) from None

    def confirm(self, action: str, *, yes: bool) -> None:
        """Ask before something is lost; only a person at a terminal is asked.

        `action` goes on after "this would", and is the question after a capital.

        Raises:
            Problem: The answer is no, or nobody can answer and `yes` was not given.
        """
        if yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            text = f"not confirmed: this would {action}"
            raise Problem(text, "pass --yes to confirm", USAGE)
        if not click.confirm(f"{action[:1].upper()}{action[1:]}?", err=True):
            raise Problem("nothing was changed")


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a terminal that closes, do what Ctrl-C does.

    The interrupt carries the number of the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Only there signals arrive.
        return

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    # What is ignored stays so: that is how `nohup` keeps a process.
    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stdin() -> BinaryIO:
    """Return the bytes of stdin.

    Raises:
        Problem: It is closed.
    """
    if sys.stdin is None:
        raise Problem("stdin is closed", "name a file, or pipe the input in", USAGE)
    return sys.stdin.buffer
