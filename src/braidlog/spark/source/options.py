"""Options of the Spark reader, from strings to a checked value.

Theory of operation: Spark hands every option over as a string under a name whose case
does not matter. ``parse`` knows all names; anything else is refused with the closest
known name, because a misspelt bound that is silently ignored reads the whole log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from braidlog.errors import InvalidArgumentError
from braidlog.paths import local_path
from braidlog.sources.origin import Origin
from braidlog.spark.source.selection import EVERYTHING, Range, Selection
from braidlog.spark.source.tasks import Order
from braidlog.suggestions import does_not_exist

T = TypeVar("T", bound=str)

BYTES_PER_PARTITION: Final = 128 << 20
"""A task costs 25-60 ms: that much data hides it, and still there is one per core."""

_NAMES: Final = (
    "path",
    "cluster",
    "raw",
    "log",
    "table",
    "at",
    "token",
    "ca",
    "from",
    "to",
    "since",
    "until",
    "streams",
    "key",
    "keyFrom",
    "keyTo",
    "order",
    "bytesPerPartition",
    "pushdown",
    "keyFormat",
    "valueFormat",
    "valueSchema",
    "malformed",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "failOnTrimmed",
    "includeArchive",
)
# So Spark names what a statement says that makes a table.
_OF_TABLES: Final = "option."
_NOT_OF_TABLES: Final = (
    "log",
    "raw",
    "from",
    "to",
    "since",
    "until",
    "streams",
    "order",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "failOnTrimmed",
    "includeArchive",
)
_PLACES: Final = ("path", "cluster", "raw")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIME: Final = 1 << 63
"""The first number that is no timestamp any more."""
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(i?b)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_HEX: Final = "hex:"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, of which place; None leaves that side to the log."""

    origin: Origin
    begin: int | None = None
    """Where to begin: below what was trimmed it is an error, unlike in `selection`."""
    selection: Selection = EVERYTHING
    order: Order = "stream"
    bytes_per_partition: int = BYTES_PER_PARTITION
    pushdown: bool = False
    key_format: str = "raw"
    value_format: str = "raw"
    value_schema: str = ""
    malformed: str = "fail"
    records_max: int | None = None
    bytes_max: int | None = None
    """Of a batch of a streaming query."""
    fail_on_trimmed: bool = True
    table: str = ""
    """A table to read instead of a log."""
    at: int | None = None
    """Position to read the table at; None is the last one."""


def parse(
    options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> ReadOptions:
    """Check all options; the token may come from ``BRAIDLOG_TOKEN``.

    Raises:
        InvalidArgumentError: An option is missing, unknown or malformed.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    _require_place(given)
    _check_table(given)
    return ReadOptions(
        origin=_origin(given, environ or {}),
        begin=_position("from", given.get("from")),
        selection=_selection(given),
        order=_choice("order", given.get("order"), ("stream", "global")),
        bytes_per_partition=(
            _size("bytesPerPartition", given.get("bytesperpartition"))
            or BYTES_PER_PARTITION
        ),
        pushdown=_flag("pushdown", given.get("pushdown")),
        key_format=_choice("keyFormat", given.get("keyformat"), ("raw", "utf8")),
        value_format=_choice(
            "valueFormat", given.get("valueformat"), ("raw", "utf8", "json", "arrow")
        ),
        value_schema=_schema(given),
        malformed=_choice("malformed", given.get("malformed"), ("fail", "null")),
        records_max=_position(
            "maxRecordsPerTrigger", given.get("maxrecordspertrigger")
        ),
        bytes_max=_size("maxBytesPerTrigger", given.get("maxbytespertrigger")),
        fail_on_trimmed=_flag("failOnTrimmed", given.get("failontrimmed"), "true"),
        table=given.get("table", ""),
        at=_position("at", given.get("at")),
    )


def _origin(given: Mapping[str, str], environ: Mapping[str, str]) -> Origin:
    cluster = given.get("cluster", "")
    token = given.get("token") or environ.get("BRAIDLOG_TOKEN", "")
    return Origin(
        given.get("log") or given["table"],
        path=_local("path", given),
        cluster=cluster,
        raw=_paths(given.get("raw")),
        ca=_local("ca", given),
        token=token if cluster else "",
        include_archive=_archive(given),
    )


def _archive(given: Mapping[str, str]) -> bool | str:
    text = given.get("includearchive", "false").strip()
    found = text.lower() == "true" if text.lower() in ("true", "false") else text
    if found and given.get("raw"):
        raise InvalidArgumentError(
            "option 'includeArchive' cannot be combined with 'raw': "
            "directories of stopped nodes do not record where the archive "
            "is; read the archive as Parquet"
        )
    return found


def micros(moment: datetime) -> int:
    """Return microseconds since the epoch, exactly; no zone means UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _require_place(given: Mapping[str, str]) -> None:
    places = [name for name in _PLACES if given.get(name)]
    named = given.get("log") or given.get("table")
    if not named or not places:
        name = "log" if places else "path"
        raise InvalidArgumentError(
            f'the Spark reader needs .option("{name}", ...) (path: the data directory, '
            "cluster: addresses of nodes, or raw: directories of nodes that do not "
            "run; log: the name of the log, or table: that of a table)"
        )
    if len(places) > 1:
        raise InvalidArgumentError(
            f"options {places[0]!r} and {places[1]!r} exclude each other: "
            "pass 'path' for a data directory, 'cluster' for a running "
            "cluster, or 'raw' for directories of stopped nodes"
        )
    for name in ("token", "ca"):
        if given.get(name) and not given.get("cluster"):
            raise InvalidArgumentError(
                f"option {name!r} can only be used with 'cluster'"
            )


def _check_table(given: Mapping[str, str]) -> None:
    if not given.get("table"):
        if given.get("at"):
            raise InvalidArgumentError(
                "option 'at' is a position of a table: name one with 'table'; a log is "
                "read up to a position with 'to'"
            )
        return
    for name in _NOT_OF_TABLES:
        if given.get(name.lower()):
            raise InvalidArgumentError(
                f"options 'table' and {name!r} exclude each other: a table is read in "
                "its data directory ('path') or of a cluster ('cluster'), at one "
                "position ('at')"
            )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in given:
        if name.startswith(_OF_TABLES):
            raise InvalidArgumentError(
                "Spark does not pass the options of CREATE TABLE to the source "
                "when the table is read: use CREATE TEMPORARY VIEW ... USING "
                "braidlog OPTIONS (...)"
            )
        if name not in known:
            what = "option of the Spark reader"
            raise InvalidArgumentError(does_not_exist(what, name, _NAMES))


def _selection(given: Mapping[str, str]) -> Selection:
    return Selection(
        position=Range(
            _position("from", given.get("from")), _position("to", given.get("to"))
        ),
        timestamp=Range(
            _timestamp("since", given.get("since")),
            _timestamp("until", given.get("until")),
        ),
        stream=Range(among=_streams(given.get("streams"))),
        key=_keys(given),
    )


def _keys(given: Mapping[str, str]) -> Range[bytes]:
    key = _bytes("key", given.get("key"))
    return Range(
        _bytes("keyFrom", given.get("keyfrom")),
        _bytes("keyTo", given.get("keyto")),
        None if key is None else frozenset((key,)),
    )


def _paths(text: str | None) -> tuple[str, ...]:
    parts = [part.strip() for part in (text or "").split(",")]
    return tuple(str(local_path(part, "option 'raw'")) for part in parts if part)


def _local(name: str, given: Mapping[str, str]) -> str:
    path = given.get(name, "")
    return str(local_path(path, f"option {name!r}")) if path else ""


def _streams(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in parts):
        raise InvalidArgumentError(
            f"option 'streams' must be stream numbers such as 1,2, not {text!r}"
        )
    return frozenset(int(part) for part in parts)


def _bytes(name: str, text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith(_HEX):
        return text.encode()
    try:
        return bytes.fromhex(text.removeprefix(_HEX))
    except ValueError:
        raise InvalidArgumentError(
            f"option {name!r} must have hexadecimal digits after {_HEX!r}, not {text!r}"
        ) from None


def _schema(given: Mapping[str, str]) -> str:
    text = given.get("valueschema", "").strip()
    if text and given.get("valueformat", "").strip().lower() not in ("json", "arrow"):
        raise InvalidArgumentError(
            "option 'valueSchema' needs valueFormat=json or valueFormat=arrow"
        )
    return text


def _position(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        kind = "a position" if name in ("from", "to", "at") else "a number of records"
        raise InvalidArgumentError(
            f"option {name!r} must be {kind} (1, 2, ...), not {text!r}"
        )
    return int(text)


def _timestamp(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        if re.fullmatch(r"\s*[+-]?\d+\s*", text):
            moment = int(text)
        else:
            moment = micros(datetime.fromisoformat(text.strip()))
    except ValueError:
        moment = _NO_TIME
    if not -_NO_TIME <= moment < _NO_TIME:
        raise InvalidArgumentError(
            f"option {name!r} must be an ISO 8601 time or microseconds since 1970 "
            f"(UTC), not {text!r}"
        )
    return moment


def _size(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _POWERS[match[2].lower()] if match else 0
    if size < 1:
        raise InvalidArgumentError(
            f"option {name!r} must be a size such as 134217728 or 128m, not {text!r}"
        )
    return size


def _choice(name: str, text: str | None, known: tuple[T, ...]) -> T:
    value = (text or known[0]).strip().lower()
    for choice in known:
        if value == choice:
            return choice
    raise InvalidArgumentError(
        f"option {name!r} must be one of {', '.join(known)}, not {text!r}"
    )


def _flag(name: str, text: str | None, default: str = "false") -> bool:
    value = (text or default).strip().lower()
    if value not in ("true", "false"):
        raise InvalidArgumentError(
            f"option {name!r} must be true or false, not {text!r}"
        )
    return value == "true"
