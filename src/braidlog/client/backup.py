"""Backs up a cluster through its replicas, one cut for each log.

Theory of operation: the metadata repository says where the log ends, up to which LLSN
of each stream, and where it begins; a second look shows that the cursors that were read
in between belong to the same beginning. The records below are committed: they never
change, and every replica has the same. They are read stream by stream, as encoded
batches, from any replica, and verified on the way. If the log is trimmed meanwhile,
another cut is taken, and only what is missing is read. Tables come before the logs,
see `braidlog.client.tables.pinned`.

Writing to the place blocks, so threads do it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from braidlog import _native
from braidlog.backup.directory import (
    Progress,
    base_of,
    differs,
    digest_of,
    known_parts,
)
from braidlog.backup.layout import (
    Backup,
    BackupCursor,
    BackupLog,
    BackupPart,
    BackupSource,
    BackupStream,
    BackupTable,
    forgotten,
)
from braidlog.backup.place import Place
from braidlog.backup.run import PART_BYTES, BackupRun, Overtaken, collect, overtaken
from braidlog.client.batches import BatchCodec
from braidlog.client.connection.cluster import Cluster
from braidlog.client.cursor_store import CursorStore
from braidlog.client.read.merge import Span
from braidlog.client.read.scan import AsyncScan
from braidlog.client.tables.pinned import ClusterTables
from braidlog.errors import NotFoundError, TrimmedError
from braidlog.store.threads import in_thread
from braidlog.wire.messages import LogInfo
from braidlog.wire.spread import KEY_STREAMS
from braidlog.wire.tables import PIN_PREFIX

_ATTEMPTS: Final = 16
_PART_BYTES_MIN: Final = 4 << 20
_CHUNK_BYTES: Final = 4 << 20
# Nothing is read of a directory: what a new one gets.
_SEGMENT_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Cut:
    """A log at one moment, with the LLSNs that each stream has."""

    info: LogInfo
    first: int
    end: int
    cursors: tuple[BackupCursor, ...]
    streams: dict[int, tuple[int, int]]


async def back_up_cluster(
    cluster: Cluster,
    codec: BatchCodec,
    place: Place,
    *,
    base: str | None,
    lease_s: float,
    progress: Progress | None = None,
) -> Backup:
    """Make a backup of all logs and tables of a cluster; in the place on return.

    Raises:
        NotFoundError: there is no backup ``base``.
        InvalidArgumentError: ``base`` is of another cluster, or of another past.
        UnavailableError: the place, or the cluster, cannot be used.
        DeadlineError: a log lets go of records faster than the place takes them.
    """
    name = cluster.routes.metadata.cluster
    identity = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    source = BackupSource("cluster", identity, name)
    known = await in_thread(base_of, place, source, base)
    await in_thread(collect, place)
    async with _running(BackupRun(place, known, lease_s)) as run:
        copy = _Copy(cluster, codec, run, source, base is not None, progress)
        logs, tables = await copy.made()
        backup = Backup(
            run.id,
            source,
            copy.base(logs, tables),
            copy.time,
            version("braidlog"),
            _SEGMENT_BYTES,
            None,
            0,
            0,
            run.new_bytes,
            tuple(logs),
            tables=tables,
            hosts={table.id: copy.hosts[table.id] for table in tables},
        )
        return await in_thread(run.publish, backup)


@asynccontextmanager
async def _running(run: BackupRun) -> AsyncIterator[BackupRun]:
    await in_thread(run.__enter__)
    try:
        yield run
    except BaseException as error:
        await in_thread(run.__exit__, type(error), error, None)
        raise
    await in_thread(run.__exit__, None, None, None)


class _Copy:
    """Copies the tables of a cluster, and its logs, one after the other."""

    def __init__(
        self,
        cluster: Cluster,
        codec: BatchCodec,
        run: BackupRun,
        source: BackupSource,
        strict: bool,
        progress: Progress | None,
    ) -> None:
        self._cluster = cluster
        self._codec = codec
        self._run = run
        self._source = source
        self._strict = strict
        self._progress = progress
        self._done = self._total = 0
        self.time = time.time_ns() // 1000
        # What is copied already, by log and stream.
        self._parts: dict[tuple[str, int], tuple[BackupPart, ...]] = {}
        if run.base is not None:
            self._parts = {
                (log.id, each.stream): each.parts
                for log in run.base.logs
                for each in log.streams
            }
        self._seen: set[tuple[str, int]] = set()
        self._tables = ClusterTables(cluster, run, source, lambda: self._tell(0))

    @property
    def hosts(self) -> dict[str, int]:
        """The node that gave the files of each table."""
        return self._tables.hosts

    def base(
        self, logs: Iterable[BackupLog], tables: Iterable[BackupTable]
    ) -> str | None:
        """Return the backup whose parts the logs and tables use again."""
        if self._run.base is None:
            return None
        used = {
            part.path for log in logs for each in log.streams for part in each.parts
        }
        used |= {file.path for table in tables for file in table.files}
        again = any(part.path in used for part in self._run.base.parts)
        return self._run.base.id if again else None

    async def made(self) -> tuple[list[BackupLog], tuple[BackupTable, ...]]:
        """Copy everything, until the tables and their logs fit.

        Raises:
            DeadlineError: a log is trimmed too fast.
        """
        failed = 0
        while True:
            taken = await self._tables.take()
            logs = await self._logs()
            try:
                return logs, await self._tables.at(taken, logs)
            except Overtaken as error:
                failed += 1
                if failed >= _ATTEMPTS:
                    raise overtaken(error.name, failed, error.what) from None

    async def _logs(self) -> list[BackupLog]:
        """Copy all logs that there are now; one that is deleted meanwhile is left out.

        Raises:
            DeadlineError: a log is trimmed too fast.
        """
        infos = (await self._cluster.linearize()).metadata.logs
        self._total = max(1, sum(_records(info) for info in infos))
        found = []
        for info in sorted(infos, key=lambda each: each.log):
            try:
                found.append(await self._log(info))
            except NotFoundError:
                if any(each.log == info.log for each in await self._infos()):
                    raise
        return found

    async def _infos(self) -> tuple[LogInfo, ...]:
        return (await self._cluster.linearize()).metadata.logs

    async def _log(self, info: LogInfo) -> BackupLog:
        for _ in range(_ATTEMPTS):
            try:
                return await self._copied(await self._cut(info))
            except TrimmedError:
                pass  # What is copied already is not copied again.
        raise overtaken(info.name, _ATTEMPTS)

    async def _cut(self, info: LogInfo) -> _Cut:
        """Return a log at one moment.

        Raises:
            NotFoundError: it is deleted.
            TrimmedError: it is trimmed at the moment.
        """

        async def refresh() -> range:
            return range(0)  # Cursors are only read here.

        before = (await self._cluster.linearize(info.log)).log(info.log)
        rows = await CursorStore(self._cluster, info.log, info.name, refresh).rows()
        now = (await self._cluster.linearize(info.log)).log(info.log)
        if now.trim != before.trim:
            msg = f"log {info.name!r} is trimmed at the moment"
            raise TrimmedError(msg, first=now.trim)
        first, end = max(1, now.trim), now.high_watermark + 1
        scan = AsyncScan(self._cluster, now, self._codec)
        ends = {each.stream: each.committed for each in now.streams}
        begins = await scan.cut(first) if first < end else ends
        cursors = tuple(
            BackupCursor(row.name, row.position, row.pin, row.touched, row.lease)
            for row in rows
            # Each restored table gets a pin of its own.
            if not row.name.startswith(PIN_PREFIX)
        )
        streams = {each: (min(begins[each], ends[each]), ends[each]) for each in ends}
        return _Cut(now, min(first, end), end, cursors, streams)

    async def _copied(self, cut: _Cut) -> BackupLog:
        info, scan = cut.info, AsyncScan(self._cluster, cut.info, self._codec)
        streams = []
        for number, (begin, end) in sorted(cut.streams.items()):
            copied = await self._stream(cut, scan, number, begin, end)
            streams.append(copied)
        return BackupLog(
            info.log.hex(),
            info.name,
            info.created,
            _options(info),
            cut.first,
            cut.end,
            cut.cursors,
            tuple(streams),
            info.replication,
            info.min_replicas,
        )

    async def _stream(
        self, cut: _Cut, scan: AsyncScan, stream: int, begin: int, end: int
    ) -> BackupStream:
        key = (cut.info.log.hex(), stream)
        parts = [each for each in self._parts.get(key, ()) if each.end > begin]
        if parts and key not in self._seen:
            last = parts[-1]
            found = await self._last(scan, stream, last.end) if last.end <= end else ""
            if found != last.last:
                if self._strict and self._run.base is not None:
                    raise differs(cut.info.name, self._run.base.id)
                parts, self._parts[key] = [], ()
        self._seen.add(key)
        parts = known_parts(parts, begin, end, self._run.id)
        at = parts[-1].end if parts else begin
        size = max(_PART_BYTES_MIN, PART_BYTES // len(cut.streams))
        while at < end:
            part = await self._part(scan, key[0], stream, at, end, size)
            parts.append(part)
            at = part.end
            self._parts[key] = tuple(parts)
        # Of producers whose records are all gone nothing is known but that there may
        # have been some: their repeats are refused, not stored twice.
        return BackupStream(stream, begin, end, forgotten(begin), tuple(parts))

    async def _last(self, scan: AsyncScan, stream: int, end: int) -> str:
        async with aclosing(scan.spans(stream, end - 1, end, 0)) as spans:
            async for span in spans:
                return self._digest(span)
        return ""

    def _digest(self, span: Span) -> str:
        """Return the digest of the last record of a span."""
        last = span.count - 1
        at = span.skip + last
        (record,) = self._codec.open(span.data).records(span.glsn + last, at, at + 1)
        return digest_of(record)

    async def _part(
        self, scan: AsyncScan, log: str, stream: int, begin: int, end: int, size: int
    ) -> BackupPart:
        header = _native.part_header(int(log, 16), stream)
        chunks, gathered, at = [(begin, header)], 0, begin
        last: Span | None = None
        async with aclosing(scan.spans(stream, begin, end, 0)) as spans:
            async for span in spans:
                data = _native.part_entry(
                    span.llsn, span.glsn, span.skip, span.count, span.data
                )
                at, last = span.llsn + span.count, span
                chunks.append((at, data))
                gathered += len(data)
                self._tell(span.count)
                if gathered >= size:
                    break
        assert last is not None  # noqa: S101, RUF100
        digest = self._digest(last)
        return await in_thread(
            self._run.write_part,
            self._source,
            log,
            stream,
            begin,
            lambda: chunks,
            lambda _: digest,
        )

    def _tell(self, records: int) -> None:
        self._done += records
        if self._progress is not None and self._total:
            self._progress(min(self._done, self._total), self._total)


def _records(info: LogInfo) -> int:
    return max(0, info.high_watermark + 1 - max(1, info.trim))


def _options(info: LogInfo) -> str:
    """Return the options of a log; in what is made of it all streams take keys."""
    if info.spread is None:
        return info.options.decode()
    options = json.loads(info.options or b"{}") | {KEY_STREAMS: len(info.streams)}
    return json.dumps(options, sort_keys=True)
