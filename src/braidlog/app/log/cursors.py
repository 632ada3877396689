"""The hosts that a log knows, by the cursors that they keep in it. Pure.

A host has two cursors. ``app-`` and its identity pins what it still needs of the log,
for a minute after it was last there. ``snapshot-`` and the name of its directory of
snapshots says how far those reach, and counts for an hour. The names are the same where
the directory of snapshots was made by the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from braidlog.app.execution.succession import Sign

HOST: Final = "app-"
SNAPSHOT: Final = "snapshot-"


class Row(Protocol):
    """A cursor, as a cluster tells it."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def position(self) -> int:
        """Next position that its owner needs."""

    @property
    def touched(self) -> int:
        """When it was stored, microseconds since the epoch, by its owner."""

    @property
    def lease(self) -> int:
        """Microseconds that it holds from then on; 0 for ever."""


@dataclass(frozen=True, slots=True)
class KnownHost:
    """One host, or the snapshots of one."""

    host: str
    """32 hexadecimal digits."""
    seen: int
    """When it last stored one of its cursors, microseconds since the epoch."""
    needs: int | None
    """First position of the log that it needs; None if it has said no such thing."""
    live: bool
    """Whether that still holds."""
    snapshot: int | None
    """Position of the snapshot to which the log may go; None if it has none."""
    counts: bool
    """Whether that is counted among ``snapshots_min``."""


def _holds(row: Row, now_us: int) -> bool:
    return row.lease == 0 or now_us < row.touched + row.lease


def _named(rows: Iterable[Row], prefix: str) -> dict[str, Row]:
    pattern = re.compile(re.escape(prefix) + "([0-9a-f]{32})")
    found = {}
    for row in rows:
        if match := pattern.fullmatch(row.name):
            found[match[1]] = row
    return found


def known(rows: Iterable[Row], now_us: int) -> list[KnownHost]:
    """Return the hosts of a log, the one that was seen last first."""
    listed = list(rows)
    hosts, snapshots = _named(listed, HOST), _named(listed, SNAPSHOT)
    found = []
    for name in hosts.keys() | snapshots.keys():
        mine, taken = hosts.get(name), snapshots.get(name)
        both = [row for row in (mine, taken) if row is not None]
        found.append(
            KnownHost(
                host=name,
                seen=max(row.touched for row in both),
                needs=mine.position if mine is not None else None,
                live=mine is not None and _holds(mine, now_us),
                snapshot=taken.position - 1 if taken is not None else None,
                counts=taken is not None and _holds(taken, now_us),
            )
        )
    return sorted(found, key=lambda each: (-each.seen, each.host))


def signs(rows: Iterable[Row], now_us: int) -> dict[bytes, Sign]:
    """Return what hosts last showed of themselves, by identity."""
    return {
        bytes.fromhex(name): Sign(row.position, row.touched, live=_holds(row, now_us))
        for name, row in _named(rows, HOST).items()
    }


def counting(rows: Iterable[Row], now_us: int) -> dict[str, int]:
    """Return the positions of cursors whose lease has not ended, by name."""
    return {row.name: row.position for row in rows if _holds(row, now_us)}
