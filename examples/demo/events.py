"""Change events: a file was put or deleted by a commit.

One event is one JSON object on one line, with the fields ``ts`` (seconds since 1970),
``source`` (the repository), ``seq`` (dense from 0 in each source), ``commit``,
``author`` (a hash), ``op`` (``put`` or ``delete``), ``path`` and, for ``put``,
``blob`` and ``mode``.

A path is bytes to git and text to JSON. Bytes that are not UTF-8 travel as lone
surrogates (Python's ``surrogateescape``), which JSON can only write as escapes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from braidlog.types import Producer

__all__ = [
    "Entry",
    "Event",
    "Tree",
    "decode",
    "decode_entry",
    "encode",
    "key_of",
    "month_of",
    "path_bytes",
    "producer_of",
    "runs",
    "shown",
]

Entry: TypeAlias = tuple[str, str]
"""Blob and mode of a file."""

Tree: TypeAlias = dict[str, Entry]
"""The files of a source by path."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: dict[int, str] = {}


@dataclass(frozen=True, slots=True)
class Event:
    """One change; ``entry`` is None for a deleted file."""

    ts: int
    source: str
    seq: int
    commit: str
    author: str
    path: str
    entry: Entry | None


def encode(event: Event) -> bytes:
    """Return the event as a line, without the line feed."""
    fields: dict[str, str | int] = {
        "ts": event.ts,
        "source": event.source,
        "seq": event.seq,
        "commit": event.commit,
        "author": event.author,
        "op": "delete" if event.entry is None else "put",
        "path": event.path,
    }
    if event.entry is not None:
        fields["blob"], fields["mode"] = event.entry
    escaped = not _is_text(event.path)
    line = json.dumps(fields, ensure_ascii=escaped, separators=(",", ":"))
    return line.encode()


def decode(line: bytes) -> Event:
    """Read a line.

    Raises:
        ValueError: It is not an event; the message says what is wrong.
    """
    try:
        fields = json.loads(line)
        entry = None
        if fields["op"] == "put":
            entry = (fields["blob"], fields["mode"])
        elif fields["op"] != "delete":
            raise ValueError(f"op is {fields['op']!r}, not put or delete")
        return Event(
            fields["ts"],
            fields["source"],
            fields["seq"],
            fields["commit"],
            fields["author"],
            fields["path"],
            entry,
        )
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a change event: {error!r}") from error


def decode_entry(line: bytes) -> tuple[str, str, Entry]:
    """Read a line of an oracle: source, path, and what is stored there.

    Raises:
        ValueError: It is not such a line.
    """
    try:
        fields = json.loads(line)
        return fields["source"], fields["path"], (fields["blob"], fields["mode"])
    except (KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"not an entry of a tree: {error!r}") from error


def key_of(event: Event) -> bytes:
    """Return the key of the record: source and path, as git's bytes."""
    return path_bytes(f"{event.source}/{event.path}")


def path_bytes(path: str) -> bytes:
    """Return the bytes that git uses for a path."""
    return path.encode("utf-8", "surrogateescape")


def producer_of(source: str) -> Producer:
    """Return the producer of a source: the same one after every restart."""
    digest = hashlib.sha256(source.encode("utf-8", "surrogateescape")).digest()
    return Producer(int.from_bytes(digest[:7], "big") + 1)


def shown(path: str | bytes) -> str:
    """Return a path for people, on one line: odd bytes and controls as escapes."""
    text = path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else path
    return "".join(_escape(sign) if not sign.isprintable() else sign for sign in text)


def month_of(ts: int) -> str:
    """Return year and month in UTC, such as ``2024-07``."""
    day = ts // 86_400
    if day not in _MONTHS:
        moment = _EPOCH + timedelta(days=day)
        _MONTHS[day] = f"{moment.year:04d}-{moment.month:02d}"
    return _MONTHS[day]


def runs(events: Iterator[Event], longest: int) -> Iterator[list[Event]]:
    """Group neighbours of one source, at most ``longest`` together."""
    held: list[Event] = []
    for event in events:
        if held and (held[0].source != event.source or len(held) == longest):
            yield held
            held = []
        held.append(event)
    if held:
        yield held


def _escape(sign: str) -> str:
    if "\udc80" <= sign <= "\udcff":
        return f"\\x{ord(sign) - 0xDC00:02x}"
    return sign.encode("unicode_escape").decode("ascii")


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
