"""The raw directories of a dead cluster as one log.

The newest fault records of the directories decide whose logs are valid, by the rule
that `braidlog rescue` goes by; the others are left out, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from braidlog.errors import (
    CorruptionError,
    FormatError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
)
from braidlog.faultlog.record import FaultRecord
from braidlog.faultlog.ring import FILE_NAME, read_ring
from braidlog.faultlog.rule import Decision, Unreadable, Wait, decide
from braidlog.faultlog.scan import scan
from braidlog.storage.merge import OnHole, RawDirectory, RawLog, RawMerge
from braidlog.storage.rawstreams import RawCatalog, RawSource
from braidlog.storage.streams import STREAM_PREFIX
from braidlog.wire.messages import StreamConfig

__all__ = ["choose_raw", "open_raw", "streams_in"]

_decoder: Final = msgspec.msgpack.Decoder(StreamConfig)

Streams = dict[int, int]
"""Stream of a directory to the number that it has in all of them."""


class _Catalog(Protocol):
    """What a directory says of itself."""

    path: Path

    def logs(self) -> list[RawLog]:
        """Return the logs of the catalog."""


C = TypeVar("C", bound=_Catalog)


def open_raw(
    directories: Sequence[str | Path],
    log: str,
    *,
    begin: int | None = None,
    on_hole: OnHole = "stop",
    order_bytes_max: int | None = None,
) -> RawMerge:
    """Read a log from the directories of nodes that do not run, in its order.

    Of a cluster: those that the fault records call valid, which takes all members that
    are not listed as failed. Of an embedded log: its one directory. The merge is to be
    closed; until then the directories are locked.

    Raises:
        LockedError: a node runs on one of them.
        NotReadyError: a member that may know more is missing; it is named.
        InvalidArgumentError: no choice is safe, or the directories do not fit together.
        NotFoundError: no valid directory has the log.
        CorruptionError: durable bytes are damaged where no copy can help.
    """
    with ExitStack() as stack:
        opened = [
            stack.enter_context(RawDirectory(path, order_bytes_max=order_bytes_max))
            for path in directories
        ]
        sources = _sources(opened, log)
        merge = RawMerge(sources, begin=begin, on_hole=on_hole)
        stack.pop_all()
    for directory in opened:
        merge.own(directory)
    return merge


def choose_raw(directories: Sequence[str | Path], log: str) -> list[RawSource]:
    """Say which directories `open_raw` reads a log from, without locking them.

    For readers of parts of a log, once somebody has seen that no node runs on them.

    Raises:
        NotReadyError: a member that may know more is missing; it is named.
        InvalidArgumentError: no choice is safe, or the directories do not fit together.
        NotFoundError: no valid directory has the log.
        CorruptionError: durable bytes of a newest segment are damaged.
    """
    catalogs = [RawCatalog(path) for path in directories]
    explicit = any((catalog.path / FILE_NAME).exists() for catalog in catalogs)
    return [
        RawSource(catalog.path, tuple(streams.items()), explicit)
        for catalog, streams in _sources(catalogs, log)
    ]


def _sources(directories: Sequence[C], log: str) -> list[tuple[C, Streams]]:
    if not any((directory.path / FILE_NAME).exists() for directory in directories):
        return _embedded(directories, log)
    records = [_record(directory.path) for directory in directories]
    configs = [_configs(directory.logs(), log) for directory in directories]
    nodes = _valid_nodes(directories, records, configs)
    numbers = {config.stream for each in configs for config in each}
    found = []
    for directory, record in zip(directories, records, strict=True):
        if isinstance(record, FaultRecord) and record.node in nodes:
            # A replica that never was a member has no configuration beside it.
            streams = {
                row.stream: number
                for row in directory.logs()
                if (number := _number(row)) in numbers
            }
            found.append((directory, streams))
    if not any(streams for _, streams in found):
        msg = f"no valid directory has a stream of the log {log!r}"
        raise NotFoundError(msg)
    return found


def streams_in(directory: RawDirectory, log: str) -> Streams:
    """Return the streams of a log that a directory has, as `RawMerge` takes them.

    Whether what they hold counts is for the fault logs to say; see `open_raw`.
    """
    rows = directory.logs()
    if not (directory.path / FILE_NAME).exists():
        return {row.stream: 1 for row in rows if row.name == log}
    numbers = {config.stream for config in _configs(rows, log)}
    return {row.stream: _number(row) for row in rows if _number(row) in numbers}


def _embedded(directories: Sequence[C], log: str) -> list[tuple[C, Streams]]:
    if len(directories) != 1:
        msg = "without fault logs nothing says which directories are valid: give one"
        raise InvalidArgumentError(msg)
    rows = [row for row in directories[0].logs() if row.name == log]
    if not rows:
        msg = f"there is no log {log!r} in {directories[0].path}"
        raise NotFoundError(msg)
    return [(directories[0], {rows[0].stream: 1})]


def _record(path: Path) -> FaultRecord | Unreadable:
    try:
        newest = scan(read_ring(path), path=str(path / FILE_NAME)).newest
    except (CorruptionError, FormatError, NotFoundError) as error:
        return Unreadable(error.message)
    return newest or Unreadable("its fault log is empty")


def _number(row: RawLog) -> int:
    rest = row.name.removeprefix(STREAM_PREFIX)
    return int(rest) if rest != row.name and rest.isdecimal() else 0


def _configs(rows: Sequence[RawLog], log: str) -> list[StreamConfig]:
    """Return the newest configurations under which replicas became members."""
    found = []
    for row in rows:
        if _number(row) and row.options:
            config = _decoder.decode(row.options)
            if config.name == log:
                found.append(config)
    return found


def _valid_nodes(
    directories: Sequence[_Catalog],
    records: Sequence[FaultRecord | Unreadable],
    configs: Sequence[Sequence[StreamConfig]],
) -> tuple[int, ...]:
    present: dict[int, FaultRecord | Unreadable] = {}
    for directory, record in zip(directories, records, strict=True):
        if isinstance(record, FaultRecord):
            if record.node in present:
                msg = f"node {record.node} is there twice, once in {directory.path}"
                raise InvalidArgumentError(msg)
            present[record.node] = record
    verdict = decide(present, _replicas(configs))
    if isinstance(verdict, Decision):
        return verdict.valid
    why = "; ".join((*verdict.why, *_unreadable(directories, records)))
    if isinstance(verdict, Wait):
        raise NotReadyError(why)
    raise InvalidArgumentError(why)


def _unreadable(
    directories: Sequence[_Catalog], records: Sequence[FaultRecord | Unreadable]
) -> list[str]:
    return [
        f"{directory.path}: {record.why}"
        for directory, record in zip(directories, records, strict=True)
        if isinstance(record, Unreadable)
    ]


def _replicas(
    configs: Sequence[Sequence[StreamConfig]],
) -> Mapping[int, tuple[int, ...]]:
    """Return the members of each stream in the newest epoch that anybody entered."""
    newest: dict[int, StreamConfig] = {}
    for config in (config for each in configs for config in each):
        known = newest.get(config.stream)
        if known is None or config.epoch > known.epoch:
            newest[config.stream] = config
    return {stream: config.replicas for stream, config in newest.items()}
