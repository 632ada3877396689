"""Options of the Spark reader, from strings to a checked value.

Theory of operation: Spark hands every option over as a string under a name whose case
does not matter. ``parse`` knows all names; anything else is refused with the closest
known name, because a misspelt bound that is silently ignored reads the whole log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Final

from braidlog.errors import InvalidArgumentError

__all__ = ["BYTES_PER_PARTITION", "ReadOptions", "micros", "parse"]

BYTES_PER_PARTITION: Final = 128 << 20
"""A task costs 25-60 ms: that much data hides it, and still there is one per core."""

_NAMES: Final = (
    "path",
    "cluster",
    "log",
    "token",
    "ca",
    "from",
    "to",
    "since",
    "until",
    "bytesPerPartition",
    "pushdown",
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(i?b)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "k": 10, "m": 20, "g": 30}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read; ranges are half-open, None leaves that side to the log."""

    path: str
    log: str
    cluster: str = ""
    token: str = field(default="", repr=False)
    ca: str = ""
    begin: int | None = None
    end: int | None = None
    since: int | None = None
    until: int | None = None
    bytes_per_partition: int = BYTES_PER_PARTITION
    pushdown: bool = False


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
    token = given.get("token") or (environ or {}).get("BRAIDLOG_TOKEN", "")
    return ReadOptions(
        path=given.get("path", ""),
        log=given["log"],
        cluster=given.get("cluster", ""),
        token=token if given.get("cluster") else "",
        ca=given.get("ca", ""),
        begin=_position("from", given.get("from")),
        end=_position("to", given.get("to")),
        since=_timestamp("since", given.get("since")),
        until=_timestamp("until", given.get("until")),
        bytes_per_partition=_size(given.get("bytesperpartition")),
        pushdown=_flag("pushdown", given.get("pushdown")),
    )


def micros(moment: datetime) -> int:
    """Return microseconds since the epoch, exactly; no zone means UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def _require_place(given: Mapping[str, str]) -> None:
    if not given.get("log") or not (given.get("path") or given.get("cluster")):
        name = "log" if given.get("path") or given.get("cluster") else "path"
        raise InvalidArgumentError(
            f'the Spark reader needs .option("{name}", ...) (path: the data directory, '
            "or cluster: addresses of nodes; log: the name of the log)"
        )
    if given.get("path") and given.get("cluster"):
        raise InvalidArgumentError(
            "options 'path' and 'cluster' name two places: a data directory is read by "
            "its path, a cluster by the addresses of its nodes"
        )
    for name in ("token", "ca"):
        if given.get(name) and not given.get("cluster"):
            raise InvalidArgumentError(f"option {name!r} is for a cluster")


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in given:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f"; did you mean {known[close[0]]!r}?" if close else ""
            raise InvalidArgumentError(
                f"unknown option {name!r} of the Spark reader{meant} "
                f"(options: {', '.join(_NAMES)})"
            )


def _position(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) < 1:
        raise InvalidArgumentError(
            f"option {name!r} must be a position (1, 2, ...), not {text!r}"
        )
    return int(text)


def _timestamp(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if re.fullmatch(r"\s*[+-]?\d+\s*", text):
        return int(text)
    try:
        return micros(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise InvalidArgumentError(
            f"option {name!r} must be an ISO 8601 time or microseconds since 1970 "
            f"(UTC), not {text!r}"
        ) from None


def _size(text: str | None) -> int:
    if text is None:
        return BYTES_PER_PARTITION
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _POWERS[match[2].lower()] if match else 0
    if size < 1:
        raise InvalidArgumentError(
            f"option 'bytesPerPartition' must be a size such as 134217728 or 128m, "
            f"not {text!r}"
        )
    return size


def _flag(name: str, text: str | None) -> bool:
    value = (text or "false").strip().lower()
    if value not in ("true", "false"):
        raise InvalidArgumentError(
            f"option {name!r} must be true or false, not {text!r}"
        )
    return value == "true"
