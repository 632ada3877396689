"""Where a log is: its name, and one of the three places to read it from.

=========== ==========================================================================
directory   followed without a lock, beside its writer; each task opens it again
cluster     read from the storage nodes; the log comes in the order of its positions
raw         directories of nodes that do not run: copies are compared, each record comes
            once; no node may run on them
=========== ==========================================================================

With its archive, a log begins where the archive begins; trimmed records come from it.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from braidlog.archive.place import absolute
from braidlog.errors import InvalidArgumentError
from braidlog.paths import local_path
from braidlog.store.archived import named

if TYPE_CHECKING:
    from braidlog.client.blocking import Client
    from braidlog.sources.source import LogSource


@dataclass(frozen=True, slots=True)
class Origin:
    """A log and its place: exactly one of ``path``, ``cluster`` and ``raw``.

    With ``include_archive``, trimmed records come from the archive of the log: the
    recorded one (True), or the one at a place that all workers see. Raw directories
    have no archive. For `audit` the archive is one more copy; `archive` reads the log
    alone.

    Tasks get the token, but it is not among the parameters of a job, so no file has it.
    """

    log: str
    path: str = ""
    cluster: str = ""
    raw: tuple[str, ...] = ()
    ca: str = ""
    token: str = field(default="", repr=False)
    include_archive: bool | str = False

    def __post_init__(self) -> None:
        """Refuse what names no place, or several.

        Raises:
            InvalidArgumentError: the call names none or several, or a URI as a path.
        """
        places = [bool(self.path), bool(self.cluster), bool(self.raw)]
        if sum(places) != 1 or not self.log:
            raise InvalidArgumentError(
                "name a log by `log` and exactly one of `path` (data directory), "
                "`cluster` (addresses of nodes) and `raw` (directories of "
                "stopped nodes)"
            )
        if self.raw and self.include_archive:
            raise InvalidArgumentError(
                "directories of stopped nodes do not record where the archive of "
                "their log is: read archives of running logs"
            )
        # Here, because on a worker the home directory is another one.
        raw = (local_path(each, "a raw directory") for each in self.raw)
        object.__setattr__(self, "raw", tuple(map(str, raw)))
        for name, what in (("path", "the data directory"), ("ca", "`ca`")):
            if given := getattr(self, name):
                object.__setattr__(self, name, str(local_path(given, what)))

    def parameters(self) -> dict[str, Any]:
        """Return what identifies the origin; directories by their absolute paths.

        In which order raw directories are named makes no difference.
        """
        where: dict[str, Any] = {"log": self.log}
        if self.path:
            where["path"] = os.path.abspath(self.path)  # noqa: PTH100
        elif self.raw:
            where["raw"] = sorted(os.path.abspath(r) for r in self.raw)  # noqa: PTH100
        else:
            where["cluster"] = self.cluster
        if self.include_archive:
            where["include_archive"] = _located(self.include_archive)
        return where

    def absolute(self) -> Origin:
        """Return the same origin, for processes that run in another directory."""
        return replace(
            self,
            path=os.path.abspath(self.path) if self.path else "",  # noqa: PTH100
            raw=tuple(os.path.abspath(each) for each in self.raw),  # noqa: PTH100
            ca=os.path.abspath(self.ca) if self.ca else "",  # noqa: PTH100
            include_archive=_located(self.include_archive),
        )

    def directories(self) -> tuple[str, ...]:
        """Return the data directories that workers have to see; of a cluster none."""
        return (self.path,) if self.path else self.raw

    def open(self, *, compare: bool = True) -> LogSource:
        """Open the log for reading; ``compare`` is that of `DeadSource`.

        Raises:
            NotFoundError: there is no such log, or it has no archive.
            LogError: the log cannot be read for another reason.
        """
        source: LogSource
        if self.path:
            from braidlog.sources.directory import DirectorySource

            source = DirectorySource(self.path, self.log)
        elif self.cluster:
            from braidlog.sources.cluster import ClusterSource

            source = ClusterSource(self.client(), self.log, own=True)
        else:
            from braidlog.sources.dead import DeadSource

            source = DeadSource(self.raw, self.log, compare=compare)
        if not self.include_archive:
            return source
        from braidlog.sources.archived import with_archive

        return with_archive(source, self.include_archive)

    def archive_location(self) -> str:
        """Return the place of the archive that is read too.

        Raises:
            NotFoundError: no archive was recorded, or there is none at the place.
        """
        with replace(self, include_archive=False).open() as source:
            return source.archive(named(self.include_archive)).location

    def client(self) -> Client:
        """Connect to the cluster."""
        from braidlog.client.blocking import connect

        # Made anew in each process: a context cannot be sent to another one.
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        return connect(self.cluster, token=self.token, ssl=context)


def _located(archive: bool | str) -> bool | str:
    return absolute(archive) if isinstance(archive, str) else archive
