"""The raw directories of a dead cluster as one log.

*Theory of operation.* The newest fault records of the directories decide whose logs are
valid, by the rule that `braidlog rescue` goes by; the others are left out, whatever
they hold. Commits of the last moment that are on no disk come from the log of the
metadata repository (`braidlog.node.rescue.raw_commits`).

Damage is passed over and named; a directory that cannot be read at all is left out, as
long as its fault log says which node it is. What was committed is on all replicas, so
one of a stream with a whole end is proof of where the stream ends; and so is the last
cut, where a majority of the copies of the repository can be read.

A merge locks the directories and reads them all (`open_raw`); readers of parts of a log
go to the same replicas with the same commits (`choose_raw`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from braidlog.errors import (
    BeyondEndError,
    CorruptionError,
    FencedError,
    FormatError,
    InvalidArgumentError,
    LogError,
    NewerFormatError,
    NotFoundError,
    NotReadyError,
    SequenceGapError,
    UnavailableError,
)
from braidlog.faultlog.record import FaultRecord
from braidlog.faultlog.rule import Decision, Unreadable, Wait, decide
from braidlog.faultlog.scan import scan
from braidlog.node.rescue.raw_commits import MissingCommits, Streams, lacking
from braidlog.node.rescue.ring import FILE_NAME, read_ring
from braidlog.store.merge import (
    Damage,
    OnHole,
    RawDirectory,
    RawLog,
    RawMerge,
    Standing,
)
from braidlog.store.node_store import STREAM_PREFIX
from braidlog.store.raw_streams import RawCatalog, RawSource
from braidlog.wire.messages import StreamConfig

_decoder: Final = msgspec.msgpack.Decoder(StreamConfig)


class _Catalog(Protocol):
    """What a directory says of itself."""

    path: Path

    def logs(self) -> list[RawLog]:
        """Return the logs of the catalog."""

    def state(self, stream: int) -> Standing:
        """Return where a stream stands."""


C = TypeVar("C", bound=_Catalog)


@dataclass(frozen=True, slots=True)
class _Node(Generic[C]):
    """A directory of a cluster, and what its fault log says last."""

    path: Path
    directory: C | None
    """None: nothing of it can be read but its fault log."""
    record: FaultRecord | Unreadable
    logs: tuple[RawLog, ...]
    configs: tuple[StreamConfig, ...]
    """Of the log that is read: the newest ones under which replicas became members."""


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
    are not listed as failed. All records that were acknowledged come out, as long as a
    majority of the voters of the metadata repository is among the directories; what may
    be missing otherwise is in the `notes` of the figures. Of an embedded log: its one
    directory. The merge is to be closed; until then the directories are locked.

    Damaged bytes are passed over, and in the figures. Without ``on_hole="skip"`` the
    merge raises at its end what it cannot prove.

    Raises:
        LockedError: a node runs on one of them.
        NotReadyError: a member that may know more is missing; it is named.
        InvalidArgumentError: no choice is safe, or the directories do not fit together.
        NotFoundError: no valid directory has the log.
        CorruptionError: none of the directories can be read.
    """
    with ExitStack() as stack:
        opened, lost = _opened(
            directories,
            lambda path: stack.enter_context(
                RawDirectory(path, order_bytes_max=order_bytes_max)
            ),
        )
        if not lost and not _explicit(opened):
            merge = RawMerge(_embedded(opened, log), begin=begin, on_hole=on_hole)
        else:
            nodes = [_look(each, log) for each in opened] + [each.node for each in lost]
            sources = _sources(nodes, log)
            told = lacking(_records(nodes), _logs(nodes), sources)
            for each in told.lacking:
                _tell(sources[each.source][0], each)
            valid = set(_valid_nodes(nodes))
            left_out = [each.damage for each in lost if each.number in valid]
            merge = RawMerge(
                sources,
                begin=begin,
                end=told.end,
                on_hole=on_hole,
                notes=told.notes,
                left_out=tuple(left_out),
                unproved=_unproved(sources, left_out) if told.end is None else None,
            )
        stack.pop_all()
    for directory in opened:
        merge.own(directory)
    return merge


def _tell(directory: RawDirectory, lacks: MissingCommits) -> None:
    """Tell a directory the commits that it lacks, as far as it can use them."""
    for commit in lacks.commits:
        try:
            fields = msgspec.structs.astuple(commit)
            directory.commit(lacks.local, lacks.epoch, fields)
        except (FencedError, SequenceGapError, BeyondEndError):
            if lacks.local not in directory.doubtful():
                raise
            return  # It is about what went with the damage.


def _unproved(
    sources: Sequence[tuple[RawDirectory, Streams]], left_out: Sequence[Damage]
) -> CorruptionError | None:
    """Say what damage keeps from being known, if nobody knows the last cut.

    A whole copy of a stream has all that was acknowledged. It proves that there is no
    more of the log if all that it has was given positions.
    """
    damages = [*left_out, *(d for each, _ in sources for d in each.damages())]
    if not damages:
        return None
    why = ""
    if left_out:
        why = "no other copy proves which records it held"
    for directory, streams in sources:
        for local, number in streams.items():
            _, committed, following, *_ = directory.state(local)
            if committed < following and local not in directory.doubtful():
                why = why or (
                    f"stream {number} has the records {committed} to {following - 1}, "
                    "and no copy proves whether they have positions in the log"
                )
    if not why:
        return None  # The ends of streams are for the merge to judge.
    msg = (
        f"{damages[0]}; {why}. Too few copies of the metadata repository "
        "are readable to know where the log ends"
    )
    return CorruptionError(msg, path=damages[0].path, offset=damages[0].begin)


def choose_raw(directories: Sequence[str | Path], log: str) -> list[RawSource]:
    """Say what `open_raw` reads a log from, without locking the directories.

    That is which of them, and the commits that only the metadata repository knows. For
    readers of parts of a log, once somebody has seen that no node runs on them.

    A directory with a damaged end is left out: see what a merge says of it first.

    Raises:
        NotReadyError: a member that may know more is missing; it is named.
        InvalidArgumentError: no choice is safe, or the directories do not fit together.
        NotFoundError: no valid directory has the log.
        CorruptionError: the ends of all directories are damaged.
    """
    catalogs, lost = _opened(directories, RawCatalog)
    explicit = bool(lost) or _explicit(catalogs)
    found: Sequence[MissingCommits] = ()
    if explicit:
        nodes = [_look(each, log) for each in catalogs] + [each.node for each in lost]
        sources = _sources(nodes, log)
        found = lacking(_records(nodes), _logs(nodes), sources).lacking
    else:
        sources = _embedded(catalogs, log)
    return [
        RawSource(
            catalog.path,
            tuple(streams.items()),
            explicit,
            {each.local: each.runs for each in found if each.source == at},
        )
        for at, (catalog, streams) in enumerate(sources)
    ]


def streams_in(directory: RawDirectory, log: str) -> Streams:
    """Return the streams of a log that a directory has, as `RawMerge` takes them.

    Whether what they hold counts is for the fault logs to say; see `open_raw`.
    """
    if not (directory.path / FILE_NAME).exists():
        return {row.stream: 1 for row in directory.logs() if row.name == log}
    node = _look(directory, log)
    return _streams(node, {config.stream for config in node.configs})


def _explicit(directories: Sequence[C]) -> bool:
    return any((directory.path / FILE_NAME).exists() for directory in directories)


def _embedded(directories: Sequence[C], log: str) -> list[tuple[C, Streams]]:
    if len(directories) != 1:
        raise InvalidArgumentError(
            "these directories have no fault logs, so nothing says which of "
            "them are valid: pass one directory"
        )
    rows = [row for row in directories[0].logs() if row.name == log]
    if not rows:
        raise NotFoundError(f"there is no log {log!r} in {directories[0].path}")
    return [(directories[0], {rows[0].stream: 1})]


# --- which directories, which streams


@dataclass(frozen=True, slots=True)
class _Lost:
    """A directory of which nothing can be read but its fault log."""

    path: Path
    record: FaultRecord
    damage: Damage

    @property
    def number(self) -> int:
        return self.record.node

    @property
    def node(self) -> _Node[Any]:
        return _Node(self.path, None, self.record, (), ())


_DAMAGED: Final = (CorruptionError, FormatError, NotFoundError, UnavailableError)
"""What a directory raises that is damaged where it says what it has."""


def _opened(
    directories: Sequence[str | Path], opening: Callable[[Path], C]
) -> tuple[list[C], list[_Lost]]:
    """Open directories, and say which of a cluster's cannot be."""
    opened: list[C] = []
    lost: list[_Lost] = []
    failures: list[LogError] = []
    places = [Path(path).resolve() for path in directories]
    for path, place in zip(map(Path, directories), places, strict=True):
        if places.count(place) > 1:
            raise InvalidArgumentError(f"the directory {path} was given more than once")
        try:
            opened.append(opening(path))
        except _DAMAGED as error:
            # Without a fault log it may be no node's directory at all.
            record = _record(path)
            if isinstance(error, NewerFormatError) or isinstance(record, Unreadable):
                raise
            where = str(getattr(error, "path", "")) or str(path)
            offset = int(getattr(error, "offset", 0))
            damage = Damage(
                where, offset, None, f"this directory was left out: {error.message}"
            )
            lost.append(_Lost(path, record, damage))
            failures.append(error)
    if not opened and failures:
        raise failures[0]
    return opened, lost


def _look(directory: C, log: str) -> _Node[C]:
    rows = tuple(directory.logs())
    configs = tuple(
        config
        for row in rows
        if _number(row) and row.options
        if (config := _decoder.decode(row.options)).name == log
    )
    path = directory.path
    return _Node(path, directory, _record(path), rows, configs)


def _record(path: Path) -> FaultRecord | Unreadable:
    try:
        newest = scan(read_ring(path), path=str(path / FILE_NAME)).newest
    except (CorruptionError, FormatError, NotFoundError) as error:
        return Unreadable(error.message)
    return newest or Unreadable("its fault log is empty")


def _records(nodes: Sequence[_Node[C]]) -> list[tuple[Path, FaultRecord | Unreadable]]:
    return [(node.path, node.record) for node in nodes]


def _logs(nodes: Sequence[_Node[C]]) -> set[bytes]:
    return {config.log for node in nodes for config in node.configs}


def _number(row: RawLog) -> int:
    rest = row.name.removeprefix(STREAM_PREFIX)
    return int(rest) if rest != row.name and rest.isdecimal() else 0


def _sources(nodes: Sequence[_Node[C]], log: str) -> list[tuple[C, Streams]]:
    valid = _valid_nodes(nodes)
    numbers = {config.stream for node in nodes for config in node.configs}
    # A replica that never was a member has no configuration beside it.
    found = [
        (node.directory, _streams(node, numbers))
        for node in nodes
        if node.directory is not None
        and isinstance(node.record, FaultRecord)
        and node.record.node in valid
    ]
    if not any(streams for _, streams in found):
        msg = f"none of the valid directories has a stream of log {log!r}"
        raise NotFoundError(msg)
    return found


def _streams(node: _Node[C], numbers: Collection[int]) -> Streams:
    return {
        row.stream: number for row in node.logs if (number := _number(row)) in numbers
    }


def _valid_nodes(nodes: Sequence[_Node[C]]) -> tuple[int, ...]:
    present: dict[int, FaultRecord | Unreadable] = {}
    for node in nodes:
        if isinstance(node.record, FaultRecord):
            if node.record.node in present:
                where = node.path
                raise InvalidArgumentError(
                    f"two of the directories belong to node {node.record.node}; one is "
                    f"{where}"
                )
            present[node.record.node] = node.record
    verdict = decide(present, _replicas(nodes))
    if isinstance(verdict, Decision):
        return verdict.valid
    why = "; ".join((*verdict.why, *_unreadable(nodes)))
    if isinstance(verdict, Wait):
        raise NotReadyError(why)
    raise InvalidArgumentError(why)


def _unreadable(nodes: Sequence[_Node[C]]) -> list[str]:
    return [
        f"{node.path}: {node.record.why}"
        for node in nodes
        if isinstance(node.record, Unreadable)
    ]


def _replicas(nodes: Sequence[_Node[C]]) -> Mapping[int, tuple[int, ...]]:
    """Return the members of each stream in the newest epoch that anybody entered."""
    newest: dict[int, StreamConfig] = {}
    for config in (config for node in nodes for config in node.configs):
        known = newest.get(config.stream)
        if known is None or config.epoch > known.epoch:
            newest[config.stream] = config
    return {stream: config.replicas for stream, config in newest.items()}
