"""Values on the command line: sizes, durations, times and delimiters.

Each function is a type for click: it names the value in the help and converts it.
`LocalPath` is that of every path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from braidlog.errors import InvalidArgumentError
from braidlog.paths import local_path


class Whole(click.ParamType):  # type: ignore[type-arg]
    """A whole number from `low` to `high`, both included."""

    name = "integer"

    def __init__(self, low: int, high: int = (1 << 62) - 1, what: str = "") -> None:
        """Bound the number; `what` says which numbers begin there."""
        self._low, self._high, self._what = low, high, what

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number."""
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number", param, ctx)
        if number < self._low:
            what = f": {self._what} begin at {self._low}" if self._what else ""
            self.fail(f"{value} is less than {self._low}{what}", param, ctx)
        if number > self._high:
            self.fail(f"{value} is more than {self._high}", param, ctx)
        return number


POSITION = Whole(1, what="positions")
COUNT = Whole(0)
SEGMENT = Whole(1, (1 << 32) - 1)
STREAMS = Whole(1, 1024)
NODE = Whole(1)
OFFSET = Whole(0, (1 << 32) - 1)

# Of a retention, in milliseconds or bytes, and of a lease.
_MAX = (1 << 63) // 1000 - 1
_LEASE_MAX_S = 1_000_000_000

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATIONS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\r": "\r"}


class LocalPath(click.Path):
    """A path of this machine: ``~`` is the home directory, a URI is refused."""

    def __init__(self, **options: Any) -> None:
        """Take the options of `click.Path`; values are `pathlib.Path`."""
        super().__init__(path_type=Path, **options)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return the path; where ``-`` is stdin or stdout, that is left alone."""
        if self.allow_dash and value == "-":
            return super().convert(value, param, ctx)
        try:
            found = local_path(value)
        except InvalidArgumentError as error:
            self.fail(error.message, param, ctx)
        return super().convert(found, param, ctx)


DIRECTORY = LocalPath(file_okay=False)
FILE = LocalPath(exists=True, dir_okay=False)
FOLDER = LocalPath(exists=True, file_okay=False)
"""A directory that is there."""


def microseconds(text: str) -> int:
    """Return an ISO 8601 time as microseconds since the epoch; UTC unless it says.

    Raises:
        ValueError: It is no time.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def size(text: str) -> int:
    """Return bytes."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if not match:
        raise click.BadParameter(
            f"{text!r} is not a size; examples: 1000000, 64MiB, 10G"
        )
    return _bounded(int(match[1]) * _SIZES[match[2]], text)


def duration(text: str) -> int:
    """Return milliseconds."""
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d|w)", text.strip().lower())
    if not match:
        raise click.BadParameter(f"{text!r} is not a duration; examples: 30s, 12h, 7d")
    return _bounded(int(match[1]) * _DURATIONS_MS[match[2]], text)


def retention(text: str) -> int:
    """Return milliseconds, or 0 for no bound."""
    return _bound(text, duration)


def retention_bytes(text: str) -> int:
    """Return bytes, or 0 for no bound."""
    return _bound(text, size)


def _bound(text: str, convert: Callable[[str], int]) -> int:
    if text.strip().lower() == "none":
        return 0
    if not (value := convert(text)):
        raise click.BadParameter(
            f"{text} would keep nothing; to keep everything, write none"
        )
    return value


def lease(text: str) -> float:
    """Return seconds, or 0 for ever."""
    if text.strip().lower() == "none":
        return 0.0
    seconds = duration(text) / 1000
    if not 0 < seconds <= _LEASE_MAX_S:
        raise click.BadParameter(
            f"{text!r} is not a lease; examples: 30s, 12h, 7d (up to 30 years), none"
        )
    return seconds


def seconds(text: str) -> float:
    """Return seconds above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= _LEASE_MAX_S:
        msg = f"{text!r} is not a number of seconds above 0, up to 30 years"
        raise click.BadParameter(msg)
    return value


def seconds_or_off(text: str) -> float | None:
    """Return seconds above 0, or None for off."""
    return None if text.strip().lower() == "off" else seconds(text)


def settings(text: str) -> dict[str, str]:
    """Return the values by name of NAME=VALUE,..."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{part!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def timestamp(text: str) -> int:
    """Return microseconds since the epoch."""
    # Fewer digits are a year or a date of ISO 8601.
    digits = re.fullmatch(r"-?\d{9,}", text.strip())
    try:
        value = int(text) if digits else microseconds(text.strip())
    except ValueError:
        value = 1 << 63
    if not -(1 << 63) <= value < 1 << 63:
        raise click.BadParameter(
            f"{text!r} is not a time; examples: 2024-05-01, 2024-05-01T12:00:00Z,"
            " microseconds since 1970"
        )
    return value


def _bounded(value: int, text: str) -> int:
    if value > _MAX:
        raise click.BadParameter(f"{text!r} is too large")
    return value


def delimiter(text: str) -> bytes:
    """Return the bytes, with the common escapes resolved."""
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    if not text:
        raise click.BadParameter("must not be empty")
    return os.fsencode(text)
