"""The directory of a first node, made of a backup: from it a new cluster begins.

Theory of operation: a rescue leaves in a node's directory all that a cluster begins
with: replicas, a fault log that names the node, and the state of the metadata
repository. Here the same is made of a backup. The node that starts in it is the only
voter and has every stream; it offers them to its repository, as after a rescue. It is
the host of all tables. Nodes that join with empty directories get replicas until each
log has as many as it asks for, and copy tables as any new host does.

All of it is made beside the target, in ``<target>.restoring``, and gets its name at the
end: what an interrupted restore leaves is at no place where anybody would start a node,
and the next restore removes it.

Invariants: records keep their positions, and their LLSNs where they come from a
cluster; of each stream the commits say which position each record has; what producers
have stored stays known.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from braidlog import _native, durable
from braidlog.backup.layout import Backup, BackupLog, BackupStream
from braidlog.backup.place import Place
from braidlog.backup.restored import ENTRY_BYTES, Restored, read_part
from braidlog.client.connection.routing import KEY_STREAMS
from braidlog.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    LogError,
    LostRecordsError,
    NotFoundError,
    UnavailableError,
)
from braidlog.faultlog.configuration import Configuration
from braidlog.metarepo.machine.adoption import about
from braidlog.metarepo.machine.state import (
    REPLICAS_MAX,
    STREAMS_OF_LOG_MAX,
    CursorState,
    LogState,
    State,
    StreamState,
    encode_state,
)
from braidlog.metarepo.succession import GroupStart
from braidlog.node.config import TABLES
from braidlog.node.peers.identity import begin_incarnation
from braidlog.node.repository.member import FIRST_GROUP
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.files import digest_of, write_seed
from braidlog.node.rescue.restored_tables import check_tables, place_tables
from braidlog.node.rescue.ring import write_locked
from braidlog.store.node_store import STREAM_PREFIX, NodeStore, StoredLog
from braidlog.wire.messages import StreamConfig, StreamStatus

Progress = Callable[[int, int], object]

_RESTORING: Final = "RESTORING"
_EPOCH: Final = 1
"""Epoch of the streams; the repository ends it when the node starts."""
_INDEX: Final = 2
"""Where the log of the repository begins: behind an index, see `base_of`."""
_COMMITS_PER_SYNC: Final = 4096
_SYNC_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the new cluster is to be like."""

    cluster: str
    node: int = 1
    """Id of the first node."""
    streams: int | None = None
    """Streams of each log; None: as in the backup."""
    replication: int | None = None
    """Replicas of each stream; None: as in the backup, 3 for logs of a directory."""
    segment_bytes: int | None = None
    wal_bytes_max: int | None = None
    without_tables: bool = False
    """Leave out the tables of the backup."""


def restore_node(
    place: Place,
    backup: Backup,
    target: Path,
    wanted: Wanted,
    *,
    now: int,
    progress: Progress | None = None,
) -> Restored:
    """Make the directory of the first node of a new cluster.

    Raises:
        AlreadyExistsError: there is something at ``target``.
        LockedError: another restore fills it.
        InvalidArgumentError: the settings make no sense, or a log has a declared hole.
        BackupDamagedError: a file of the backup is damaged or missing.
        UnavailableError: the system refuses, for instance because the disk is full.
    """
    if wanted.without_tables:
        backup = replace(backup, tables=())
    _check(backup, wanted)
    check_tables(backup)
    _refuse_existing(target)
    workshop = target.with_name(f"{target.name}.restoring")
    unfinished = workshop / "data"
    with _explained(workshop):
        _clear(workshop)
        workshop.mkdir()
        note = {"backup": backup.id, "place": place.location}
        durable.replace(workshop / _RESTORING, json.dumps(note).encode() + b"\n")
    limits: dict[str, Any] = {
        "segment_bytes": wanted.segment_bytes or backup.segment_bytes,
        "wal_bytes_max": wanted.wal_bytes_max or backup.wal_bytes_max,
    }
    node = NodeStore(
        unfinished, entropy=secrets.randbits(64), now=lambda: now, **limits
    )
    try:
        filling = _Node(place, backup, node, wanted, progress)
        state = filling.filled()
    finally:
        node.close()
    place_tables(place, backup, unfinished / TABLES, state, wanted.node, filling.read)
    configuration = Configuration(FIRST_GROUP + 1, 0, (wanted.node,))
    seed = GroupStart(
        configuration.epoch, _INDEX, (wanted.node,), True, encode_state(state)
    )
    write_seed(unfinished, seed)
    with FaultLog.open(unfinished, wanted.cluster, wanted.node) as log:
        log.record(configuration, viable=True, state=digest_of(seed))
    with _explained(target):
        # Onto an empty directory as well as onto nothing.
        durable.move(unfinished, target)
        shutil.rmtree(workshop)
    return Restored(
        str(target),
        backup.id,
        len(backup.logs),
        backup.records,
        backup.bytes,
        len(backup.tables),
    )


def _check(backup: Backup, wanted: Wanted) -> None:
    if not wanted.cluster:
        raise InvalidArgumentError("the name of a cluster must not be empty")
    if wanted.node < 1:
        raise InvalidArgumentError(f"ids of nodes begin at 1, got {wanted.node}")
    copies = wanted.replication
    if copies is not None and not 1 <= copies <= REPLICAS_MAX:
        msg = f"replication must be from 1 to {REPLICAS_MAX}, got {copies}"
        raise InvalidArgumentError(msg)
    if wanted.streams is None:
        return
    most = max((len(log.streams) for log in backup.logs), default=1)
    if not most <= wanted.streams <= STREAMS_OF_LOG_MAX:
        msg = (
            f"streams must be from {most}, which a log of the backup has, to "
            f"{STREAMS_OF_LOG_MAX}, got {wanted.streams}"
        )
        raise InvalidArgumentError(msg)


def _refuse_existing(target: Path) -> None:
    if not target.parent.is_dir():
        msg = f"{target} cannot be made, because {target.parent} does not exist"
        raise NotFoundError(msg)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise AlreadyExistsError(f"{target} already exists")


def _clear(workshop: Path) -> None:
    """Remove what a restore left that was interrupted.

    Raises:
        AlreadyExistsError: it is something else.
        LockedError: that restore is running.
    """
    if not workshop.exists():
        return
    marks = {_RESTORING, f"{_RESTORING}.tmp"}
    names = {path.name for path in workshop.iterdir()}
    if not names <= {*marks, "data"} or ("data" in names and not names & marks):
        raise AlreadyExistsError(f"{workshop} already exists")
    if "data" not in names:
        shutil.rmtree(workshop)
        return
    with write_locked(workshop / "data"):
        shutil.rmtree(workshop)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say which path the system refused."""
    try:
        yield
    except OSError as error:
        if isinstance(error, LogError):
            raise
        why = error.strerror or str(error)
        raise UnavailableError(f"{path}: {why}", path=str(path)) from error


class _Node:
    """Fills the store of the first node."""

    def __init__(
        self,
        place: Place,
        backup: Backup,
        store: NodeStore,
        wanted: Wanted,
        progress: Progress | None,
    ) -> None:
        self._place = place
        self._backup = backup
        self._store = store
        self._wanted = wanted
        self._progress = progress
        self._next = 1
        self._read = 0
        self._unsynced = 0

    def filled(self) -> State:
        """Write all streams; return what the repository begins with."""
        state = State(index=_INDEX, revision=_INDEX)
        # Streams keep their numbers: those that are added come behind.
        numbers = [each.stream for log in self._backup.logs for each in log.streams]
        directory = self._backup.source.kind == "directory"
        self._next = 1 if directory else max(numbers, default=0) + 1
        for log in self._backup.logs:
            self._log(state, log, directory=directory)
        state.stream_next = self._next
        # The directory counts as one in which a node was started: it has its records.
        begin_incarnation(self._store, secrets.token_bytes)
        self._store.sync()
        return state

    def _log(self, state: State, log: BackupLog, *, directory: bool) -> None:
        node, identity = self._wanted.node, bytes.fromhex(log.id)
        streams: list[tuple[int, BackupStream | None]] = [
            (self._number() if directory else each.stream, each) for each in log.streams
        ]
        more = (self._wanted.streams or 0) - len(streams)
        streams += [(self._number(), None) for _ in range(more)]
        replication = self._wanted.replication or log.replication or 3
        fewest = min(log.min_replicas, replication) or replication // 2 + 1
        options = _options(log, len(streams))
        made = LogState(
            log=identity,
            name=log.name,
            replication=replication,
            min_replicas=fewest,
            options=options,
            created=log.created,
            streams=tuple(number for number, _ in streams),
            high_watermark=log.end - 1,
            trim=log.first,
            cursors={
                each.name: CursorState(
                    each.position, each.pin, each.lease, each.touched
                )
                for each in log.cursors
            },
        )
        for number, stored in streams:
            config = StreamConfig(
                stream=number,
                log=identity,
                name=log.name,
                epoch=_EPOCH,
                status=StreamStatus.RUNNING,
                replicas=(node,),
                learners=(),
                start=1,
                epochs=(),
                version=0,
                high_watermark=0,
                trim=log.first,
                options=options,
                replication=replication,
                min_replicas=fewest,
                created=log.created,
            )
            version = self._stream(number, config, log, stored)
            made.version = max(made.version, version)
            committed = stored.end if stored is not None else 1
            state.streams[number] = StreamState(
                number,
                identity,
                (node,),
                epoch=_EPOCH,
                committed=committed,
                last_version=version,
                holders=(node,),
            )
        state.logs[identity] = made

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    # -- records -----------------------------------------------------------------

    def _stream(
        self,
        number: int,
        config: StreamConfig,
        log: BackupLog,
        stored: BackupStream | None,
    ) -> int:
        """Write one stream; return the version of its last commit."""
        replica = self._store.create(f"{STREAM_PREFIX}{number}", about(config))
        first = stored.first if stored is not None else 1
        windows = stored.producers if stored is not None else b""
        below = _native.producers_below(windows, first) if windows else b""
        replica.restart(_EPOCH, first, about(config), below)
        if stored is None or stored.first == stored.end:
            return 0
        version, run = 0, (0, 0, 0)
        for llsn, glsn, count, batch in self._entries(log, stored):
            self._place_batch(replica, log, llsn, batch)
            begin_glsn, begin, length = run
            if length and (begin + length, begin_glsn + length) == (llsn, glsn):
                run = (begin_glsn, begin, length + count)
                continue
            if length:
                version += 1
                self._commit(replica, version, run)
            run = (glsn, llsn, count)
        version += 1
        self._commit(replica, version, run, high_watermark=log.end - 1)
        return version

    def _commit(
        self,
        replica: StoredLog,
        version: int,
        run: tuple[int, int, int],
        high_watermark: int = 0,
    ) -> None:
        glsn, llsn, length = run
        mark = max(high_watermark, glsn + length - 1)
        replica.native.commit(
            replica.number, _EPOCH, (version, glsn, llsn, length, mark)
        )
        if version % _COMMITS_PER_SYNC == 0:
            self._store.sync()

    def _place_batch(
        self, replica: StoredLog, log: BackupLog, llsn: int, batch: bytes
    ) -> None:
        try:
            replica.native.place(replica.number, _EPOCH, llsn, [batch])
        except LostRecordsError as error:
            msg = (
                f"log {log.name!r} has a declared hole at positions {error.first} to "
                f"{error.end}, which a cluster cannot have"
            )
            raise InvalidArgumentError(msg).advising(
                "Restore it to a directory, and export what it has"
            ) from error
        self._unsynced += len(batch)
        if self._unsynced >= _SYNC_BYTES:
            self._store.sync()
            self._store.housekeeping()
            self._unsynced = 0

    def _entries(
        self, log: BackupLog, stream: BackupStream
    ) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the batches of a stream from its first record on."""
        for part in stream.parts:
            data = read_part(self._place, log, stream, part)
            for llsn, glsn, count, batch in _native.part_entries(data):
                skip = max(0, stream.first - llsn)
                if skip >= count:
                    continue
                if skip:
                    left = (llsn + skip, glsn + skip, count - skip)
                    entry = _native.part_entry(left[0], left[1], skip, left[2], batch)
                    yield (*left, entry[ENTRY_BYTES:])
                else:
                    yield llsn, glsn, count, batch
            self.read(part.bytes)

    def read(self, size: int) -> None:
        """Say that so much more of the backup was read."""
        self._read += size
        if self._progress is not None:
            self._progress(self._read, max(1, self._backup.bytes))


def _options(log: BackupLog, streams: int) -> bytes:
    options = json.loads(log.options or "{}")
    spread = {**options, KEY_STREAMS: options.get(KEY_STREAMS, streams)}
    if streams > len(log.streams):
        spread[KEY_STREAMS] = streams
    return json.dumps(spread, sort_keys=True).encode()
