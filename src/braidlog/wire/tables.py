"""Tables as the metadata repository and its clients name them, and changes of them.

A change is one element of a `ChangeTables` command: any number of them are made
together, or none. What a change has to know is in it: identities are random and chosen
by whoever proposes it, so that two creators of one name can only collide by its name.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from braidlog.wire.base import LogId, Number, Value

__all__ = [
    "PIN_PREFIX",
    "CreateIndex",
    "CreateTable",
    "DropIndex",
    "DropTable",
    "IndexInfo",
    "IndexStatus",
    "RenameTable",
    "ReplaceTable",
    "SettleIndex",
    "TableChange",
    "TableInfo",
]


PIN_PREFIX: Final = "table:"
"""How the names of cursors begin that pin a log for the hosts of its tables."""


class IndexStatus(IntEnum):
    """How far an index is."""

    BUILDING = 1
    """Records before its creation are still being added to it."""
    ACTIVE = 2
    ABORTED = 3
    """It could not be built, for the reason that is given; it answers nothing."""


class IndexInfo(Value, frozen=True, array_like=True):
    """An index of a table."""

    tree: bytes
    """Identity of its tree, 16 bytes; a rebuilt index has another one."""
    name: str
    field: bytes
    """What of a record it is ordered by, as the store encodes it."""
    status: IndexStatus = IndexStatus.ACTIVE
    reason: str = ""
    """Why it was aborted."""


class TableInfo(Value, frozen=True, array_like=True):
    """A table, and the nodes that keep it."""

    table: bytes
    """Identity, 16 bytes; a table that was emptied or rebuilt has another one."""
    name: str
    log: LogId
    tree: bytes
    """Identity of its primary tree."""
    begin: Number
    """First GLSN that it follows."""
    created: Number
    """Microseconds since the Unix epoch."""
    replicas: Number
    """How many nodes should keep it; 0: as many as keep a stream of its log."""
    options: bytes = b""
    indexes: tuple[IndexInfo, ...] = ()
    hosts: tuple[Number, ...] = ()
    """Nodes that keep it."""
    joined: tuple[Number, ...] = ()
    """Hosts that have all of it, up to where they have applied the log."""


class _Change(msgspec.Struct, frozen=True, array_like=True):
    """What all changes have."""


class CreateTable(_Change, frozen=True, array_like=True, tag=1):
    """Create a table over a log."""

    table: bytes
    tree: bytes
    name: str
    log: bytes
    replicas: Number = 0
    options: bytes = b""
    hosts: tuple[Number, ...] = ()
    """The leader fills it in with nodes that are alive; empty: any that are known."""
    begin: Number = 0
    """First GLSN that it follows; 0: the first of the log. Needs `TABLE_TASKS`."""


class DropTable(_Change, frozen=True, array_like=True, tag=2):
    """Drop a table with its indexes."""

    table: bytes


class RenameTable(_Change, frozen=True, array_like=True, tag=3):
    """Give a table another name."""

    table: bytes
    name: str


class CreateIndex(_Change, frozen=True, array_like=True, tag=4):
    """Create an index; of a table without records it is active at once."""

    table: bytes
    tree: bytes
    name: str
    field: bytes


class SettleIndex(_Change, frozen=True, array_like=True, tag=5):
    """Say that an index is built, or why it cannot be; the first to say so decides."""

    table: bytes
    tree: bytes
    active: bool
    reason: str = ""


class DropIndex(_Change, frozen=True, array_like=True, tag=6):
    """Drop an index, also one that is being built."""

    table: bytes
    tree: bytes


class ReplaceTable(_Change, frozen=True, array_like=True, tag=7):
    """Empty a table or build it anew: it gets new identities and keeps its name."""

    table: bytes
    successor: bytes
    trees: tuple[bytes, ...]
    """Identities of the primary tree and of each index, in their order."""
    empty: bool
    """Whether it begins behind the last record that is committed now."""
    begin: Number = 0
    """Else: where it begins; 0: with the first record of the log. Needs
    `TABLE_TASKS`."""


TableChange: TypeAlias = (
    CreateTable
    | DropTable
    | RenameTable
    | CreateIndex
    | SettleIndex
    | DropIndex
    | ReplaceTable
)
