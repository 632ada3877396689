"""Settings of a node: a TOML file, overridden by the environment.

Every setting has a section, a key and a default; `BRAIDLOG_<SECTION>_<KEY>` in the
environment replaces what the file says. An unknown section or key is refused: a typing
error must not turn into a default. The data directory has two names more, `--data` and
`BRAIDLOG_DATA`, as in every other command.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from braidlog.errors import InvalidArgumentError
from braidlog.logstream.effects import Limits
from braidlog.paths import local_path
from braidlog.serving.settings import (
    SecuritySettings,
    check_exposure,
    host_and_port,
)
from braidlog.suggestions import does_not_exist
from braidlog.wire.connection import FRAME_BYTES_MAX

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
TABLES: Final = "tables"
"""Sub-directory of the data directory for the tables that the node keeps."""

_PREFIX: Final = "BRAIDLOG_"
_BATCH_BYTES_MAX: Final = 16 << 20
"""Largest record batch, if a quarter of a segment holds it."""
_GROUP_BYTES_MAX: Final = 8 << 20
"""What a primary sends to its backups at a time, but for a larger batch."""
_HEAD_BYTES_MAX: Final = 1 << 20
"""What comes with it, at most."""
_PAGE_BYTES: Final = 4096
_SEGMENT_BYTES: Final = range(64 << 10, (2 << 30) + 1)
_SEGMENTS_MIN: Final = 4
_TABLES_MEMORY_MIN: Final = 1 << 20
"""Of these three the core says the same."""
_SPIN_US_MAX: Final = 10_000
"""Longer, a node would keep a core busy from one heartbeat to the next."""
_SLOW_WINDOW_MS: Final = 250
"""Nodes are judged in windows of that length."""
_MAY_BE_NONE: Final = frozenset({"wal_ready_bytes", "scrub_bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Who the node is and where it listens."""

    id: int = 0
    """Number of the node, from 1. Never given to another node again."""
    data: str = ""
    """Directory of the write-ahead log."""
    listen: str = "127.0.0.1:7400"
    """host:port to listen on."""
    advertise: str = ""
    """host:port that others connect to; `listen` if empty."""
    http: str = ""
    """host:port of metrics, health and readiness; off if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What all nodes have in common."""

    name: str = "braidlog"
    """Nodes and clients of another name are refused."""
    voters: Mapping[int, str] = field(default_factory=dict)
    """The first members of the metadata repository: node id to host:port. The same on
    every node. Read at the first start; members that join later come from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingSettings:
    """Milliseconds, but for one."""

    heartbeat_ms: int = 100
    """A node that has news reports so often."""
    failure_ms: int = 500
    """A node that was silent for so long is taken for dead."""
    tick_ms: int = 50
    """Clock of the Raft group; an election starts after 10 to 20 ticks without the
    leader, after 2 to 7 if its connection broke."""
    fetch_ms: int = 500
    """A fetch that was not answered for so long is sent again, elsewhere."""
    forward_ms: int = 6_000
    """What another node has to answer is given up after so long; a seal takes 5 s."""
    drain_ms: int = 10_000
    """A graceful stop waits so long for requests in flight."""
    retention_ms: int = 10_000
    """Between looks at what the retention of logs lets go of."""
    table_repair_ms: int = 30_000
    """A host of tables that was dead for so long is replaced by another node. One that
    no other host gave a copy for so long makes its table anew of the log."""
    shard_repair_ms: int = 30_000
    """A member of a shard whose node was dead for so long is replaced by another."""
    scrub_ms: int = 7 * 24 * 3600 * 1000
    """Between the beginnings of passes that read everything that is on the disk."""
    slow_ms: int = 10
    """A replica that is durable so much later than the first one may be on a slow node;
    0: no node is taken for slow."""
    slow_after_ms: int = 2_000
    """A node is slow when its replicas were late for so long."""
    slow_back_ms: int = 10_000
    """A slow node takes part again when it has been fast for so long."""
    spin_us: int = 0
    """Microseconds after the last append in which the node looks for the next one again
    and again, before it sleeps: less latency for a busy core. Without TLS alone."""

    def __post_init__(self) -> None:
        """Refuse times that cannot work together."""
        times = {each.name: getattr(self, each.name) for each in fields(self)}
        none = {"slow_ms", "spin_us"}
        if min(each for name, each in times.items() if name not in none) < 1:
            raise InvalidArgumentError(
                "[timing] all times but slow_ms and spin_us must be at least 1 ms"
            )
        if not 0 <= self.spin_us <= _SPIN_US_MAX:
            msg = f"[timing] spin_us = {self.spin_us} must be 0 to {_SPIN_US_MAX}"
            raise InvalidArgumentError(msg)
        if self.slow_ms < 0:
            msg = f"[timing] slow_ms = {self.slow_ms} must be at least 0"
            raise InvalidArgumentError(msg)
        if min(self.slow_after_ms, self.slow_back_ms) < _SLOW_WINDOW_MS:
            raise InvalidArgumentError(
                "[timing] slow_after_ms and slow_back_ms must be at least "
                f"{_SLOW_WINDOW_MS}"
            )
        if self.failure_ms < 2 * self.heartbeat_ms:
            raise InvalidArgumentError(
                f"[timing] failure_ms = {self.failure_ms} must be at least twice "
                f"heartbeat_ms = {self.heartbeat_ms}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """Bytes, and what else is bounded."""

    wal_bytes_max: int = 64 << 30
    """Size of the write-ahead log."""
    segment_bytes: int = 64 << 20
    """Size of one of its files."""
    wal_ready_bytes: int = 0
    """Files that are made at the start, before the node serves, not when needed."""
    frame_bytes_max: int = 17 << 20
    """Largest frame: a batch of 16 MiB and what belongs to it."""
    window_bytes: int = 32 << 20
    """Unanswered requests of one connection."""
    link_bytes_max: int = 64 << 20
    """Messages that wait for one peer; more are dropped and fetched again."""
    uncommitted_bytes_max: int = 64 << 20
    """Appended and not committed, of one stream."""
    fetch_bytes_max: int = 4 << 20
    """One answer to a fetch or read."""
    incoming_bytes_max: int = 256 << 20
    """Frames that are not whole yet, of all connections."""
    connections_max: int = 10_000
    """Clients at a time, if the limit of open files allows so many."""
    tables_memory_bytes: int = 512 << 20
    """What all tables of the node have in memory together, before it is in files."""
    scrub_bytes: int = 1 << 20
    """What such a pass reads in a second at most; 0: there is none."""

    @property
    def append_bytes_max(self) -> int:
        """Return the largest frame of a client: a batch, and what belongs to it."""
        batch = min(_BATCH_BYTES_MAX, self.segment_bytes // 4)
        return min(self.frame_bytes_max, batch + _HEAD_BYTES_MAX)

    @property
    def state_bytes_max(self) -> int:
        """Return how large a snapshot of the metadata may be.

        It is stored at the head of each segment, in the quarter that all state of a
        node may take, sent in one frame to a member that is behind, and most of it in
        one frame to a client.
        """
        frame = min(self.frame_bytes_max, FRAME_BYTES_MAX)
        return min(self.segment_bytes * 3 // 16, frame - _HEAD_BYTES_MAX)

    def __post_init__(self) -> None:
        """Refuse sizes that cannot work together."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        for name, value in values.items():
            least = 0 if name in _MAY_BE_NONE else 1
            if value < least:
                msg = f"[limits] {name} = {value} must be at least {least}"
                raise InvalidArgumentError(msg)
        if self.tables_memory_bytes < _TABLES_MEMORY_MIN:
            raise InvalidArgumentError(
                f"[limits] tables_memory_bytes = {self.tables_memory_bytes} must be at "
                f"least {_TABLES_MEMORY_MIN}"
            )
        self._check_files()
        # What nodes send one another is one frame: a group, a batch, an answer.
        batch = min(_BATCH_BYTES_MAX, self.segment_bytes // 4)
        least = max(_GROUP_BYTES_MAX, batch, self.fetch_bytes_max) + _HEAD_BYTES_MAX
        if self.frame_bytes_max < least:
            raise InvalidArgumentError(
                f"[limits] frame_bytes_max = {self.frame_bytes_max} must be at "
                f"least {least}, to hold batches of {batch} bytes and answers of "
                f"fetch_bytes_max = {self.fetch_bytes_max}"
            )
        if self.window_bytes < self.frame_bytes_max:
            raise InvalidArgumentError(
                f"[limits] window_bytes = {self.window_bytes} must be at least "
                f"frame_bytes_max = {self.frame_bytes_max}, to hold one frame"
            )

    def _check_files(self) -> None:
        """Refuse what the core would, which is asked only when a node starts."""
        size = self.segment_bytes
        if size not in _SEGMENT_BYTES or size % _PAGE_BYTES:
            raise InvalidArgumentError(
                f"[limits] segment_bytes = {size} must be a multiple of "
                f"{_PAGE_BYTES} from {_SEGMENT_BYTES.start} to "
                f"{_SEGMENT_BYTES.stop - 1}"
            )
        if self.wal_bytes_max < _SEGMENTS_MIN * size:
            raise InvalidArgumentError(
                f"[limits] wal_bytes_max = {self.wal_bytes_max} must be at least "
                f"{_SEGMENTS_MIN * size}: four segments of segment_bytes = {size}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What the node says on stderr."""

    level: str = "info"
    """The least that is logged: debug, info, warning or error."""

    def __post_init__(self) -> None:
        """Refuse a level that there is not."""
        if self.level not in LOG_LEVELS:
            msg = f"[log] level = {self.level!r} must be one of {', '.join(LOG_LEVELS)}"
            raise InvalidArgumentError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All settings."""

    node: NodeSettings = field(default_factory=NodeSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    security: SecuritySettings = field(default_factory=SecuritySettings)
    timing: TimingSettings = field(default_factory=TimingSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        """Refuse what cannot serve, before anything is opened.

        Raises:
            InvalidArgumentError: names the section and key.
        """
        if self.node.id < 1:
            raise InvalidArgumentError(
                f"[node] id = {self.node.id}: give each node of the cluster its own "
                "number, from 1"
            )
        if not self.node.data:
            raise InvalidArgumentError(
                "[node] data is missing: name the directory of this node's data "
                "here or with --data"
            )
        for key, address in self._addresses().items():
            host_and_port(address, key)
        # Of two that ask for any port, each gets its own.
        same = self.node.http == self.node.listen
        if same and host_and_port(self.node.listen)[1]:
            raise InvalidArgumentError(
                f"[node] http = {self.node.http!r} is also the address of [node] "
                "listen: use another port"
            )
        self._check_voters()
        self._check_exposure()

    def _addresses(self) -> dict[str, str]:
        named = {"[node] listen": self.node.listen, "[node] advertise": self.advertise}
        if self.node.http:
            named["[node] http"] = self.node.http
        voters = self.cluster.voters.items()
        return named | {f"[cluster] voters.{node}": each for node, each in voters}

    def _check_voters(self) -> None:
        voters = self.cluster.voters
        if not voters:
            raise InvalidArgumentError(
                "[cluster] voters is missing: name the first members of the "
                "metadata repository, the same on every node. For a cluster of one "
                f'node write voters = {{ {self.node.id} = "{self.advertise}" }}'
            )
        for node, address in voters.items():
            others = (each for each in voters if voters[each] == address)
            if (first := min(others)) != node:
                raise InvalidArgumentError(
                    f"[cluster] voters.{node} = {address!r} is also the address of "
                    f"voter {first}: each voter needs its own"
                )

    def _check_exposure(self) -> None:
        listens = {
            "[node] listen": self.node.listen,
            "[node] http": self.node.http,
        }
        check_exposure(listens, self.security)

    @property
    def advertise(self) -> str:
        """Return where others connect to."""
        return self.node.advertise or self.node.listen


_SECTIONS: Final[dict[str, type]] = {
    name: kind
    for name, kind in get_type_hints(NodeConfig).items()
    if name in {each.name for each in fields(NodeConfig)}
}


def parse(
    text: str, environment: Mapping[str, str], origin: str = "", *, data: str = ""
) -> NodeConfig:
    """Make settings of a TOML text and `BRAIDLOG_*` variables.

    ``data`` is the data directory if it was said on the command line: it goes before
    what the environment and the text say.

    Raises:
        InvalidArgumentError: not TOML, an unknown section or key, a value of another
            type, settings that cannot serve, or two different data directories.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgumentError(f"{origin or 'settings'}: {error}") from error
    unknown = sorted(set(tables) - set(_SECTIONS))
    if unknown:
        raise InvalidArgumentError(does_not_exist("section", unknown[0], _SECTIONS))
    for variable, value in environment.items():
        section, key = _named(variable)
        table = tables.setdefault(section, {}) if section else None
        if isinstance(table, dict):  # What is no section is refused below.
            table[key] = value
    node = tables.setdefault("node", {})
    if isinstance(node, dict):
        decided = "BRAIDLOG_NODE_DATA" in environment
        node["data"] = data or _directory(node.get("data", ""), environment, decided)
        if node["data"] and isinstance(node["data"], str):
            node["data"] = str(local_path(node["data"], "[node] data"))
    return NodeConfig(
        **{
            name: _section(name, kind, tables.get(name, {}))
            for name, kind in _SECTIONS.items()
        }
    )


def _directory(said: Any, environment: Mapping[str, str], decided: bool) -> Any:
    """Return the data directory: `BRAIDLOG_DATA` names it for all commands.

    Where the settings say another one, neither is what everybody would expect: a node
    that took the wrong one would begin anew in it.
    """
    common = environment.get("BRAIDLOG_DATA", "")
    if not common or decided:
        return said
    if (
        said
        and isinstance(said, str)
        and Path(said).resolve() != Path(common).resolve()
    ):
        raise InvalidArgumentError(
            f"BRAIDLOG_DATA names {common}, but [node] data names {said}: "
            "remove one of them, or pass --data"
        )
    return said or common


def load(
    path: Path | None,
    environment: Mapping[str, str] = os.environ,
    *,
    data: str = "",
) -> NodeConfig:
    """Read the file at `path`, if any, and the environment; `data` goes before both.

    Raises:
        InvalidArgumentError: the file cannot be read, or see `parse`.
    """
    if path is None:
        return parse("", environment, data=data)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError(f"{path}: {why}") from error
    return parse(text, environment, str(path), data=data)


def _named(variable: str) -> tuple[str, str]:
    """Return section and key of a variable; empty if it is none of ours."""
    section, _, key = variable.removeprefix(_PREFIX).lower().partition("_")
    if not variable.startswith(_PREFIX) or section not in _SECTIONS or not key:
        return "", ""  # BRAIDLOG_CLUSTER alone names a cluster to clients
    return section, key


def _section(name: str, kind: type, table: Any) -> Any:
    if not isinstance(table, dict):
        msg = f"[{name}] must be a section with settings, got {table!r}"
        raise InvalidArgumentError(msg)
    hints = get_type_hints(kind)
    values = {}
    for key, value in table.items():
        if key not in hints:
            message = does_not_exist(f"[{name}]: setting", key, hints)
            raise InvalidArgumentError(message)
        values[key] = _value(f"[{name}] {key}", hints[key], value)
    return kind(**values)


def _value(what: str, kind: Any, value: Any) -> Any:
    """Check the type of a value, or read it if it comes as text."""
    if kind is int and isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if kind is bool and value in {"true", "false"}:
        return value == "true"
    if kind not in {int, bool, str}:
        return _voters(what, value)
    if type(value) is not kind:
        raise InvalidArgumentError(f"{what} must be {_SAID[kind]}, got {value!r}")
    return value


_SAID: Final = {int: "a number", bool: "true or false", str: "text in quotes"}


def _voters(what: str, value: Any) -> dict[int, str]:
    """Read a table of voters, or `1=host:port,2=host:port`."""
    pairs: list[tuple[Any, Any]] = [("", None)]
    if isinstance(value, str):
        pairs = [part.partition("=")[::2] for part in value.split(",") if part]
    elif isinstance(value, dict):
        pairs = list(value.items())
    if not all(
        str(node).strip().isdecimal() and int(node) > 0 and isinstance(address, str)
        for node, address in pairs
    ):
        raise InvalidArgumentError(
            f"{what} must map node ids to addresses, such as 1 = "
            f'"10.0.0.1:7400"; got {value!r}'
        )
    voters = {int(node): address for node, address in pairs}
    if len(voters) < len(pairs):
        named = ", ".join(str(node) for node, _ in pairs)
        raise InvalidArgumentError(f"{what} names a node twice: {named}")
    return voters


def replica_limits(config: NodeConfig) -> Limits:
    """Return what each replica of the node bears."""
    return Limits(
        uncommitted_bytes_max=config.limits.uncommitted_bytes_max,
        fetch_bytes_max=config.limits.fetch_bytes_max,
        fetch_timeout=config.timing.fetch_ms / 1000,
    )
