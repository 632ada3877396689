"""How numbers, times and names look to people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000}


def counted(count: int, noun: str) -> str:
    """Return a count and its noun in the right number."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def human_bytes(count: int) -> str:
    """Return a size a person can read."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.0f} {units[0]}" if units[0] == "B" else f"{size:.1f} {units[0]}"


def human_duration(milliseconds: int) -> str:
    """Return a duration exactly, in the largest unit that divides it."""
    for unit, size in _DURATIONS_MS.items():
        if milliseconds % size == 0 and (milliseconds or unit == "s"):
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def clock(timestamp: int) -> str:
    """Return a timestamp as ISO 8601 in UTC, or the number where no date fits."""
    try:
        moment = _EPOCH + timedelta(microseconds=timestamp)
    except OverflowError:
        return f"{timestamp}us"
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """Return text on one line, with what could steer a terminal escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else repr(character)[1:-1]
        for character in text
    )
