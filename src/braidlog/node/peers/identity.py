"""What a node keeps about itself: who its directory is, and the number of its start.

The identity is drawn when the directory is made and never changes. An id that comes
with another one comes without what the node promised: its votes, its records. Reports
of an earlier start may still be on their way when a node is back; the number tells them
apart. Both are stored before the node says anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from braidlog.errors import CorruptionError
from braidlog.store.node_store import NodeStore

IDENTITY_BYTES: Final = 16

NAME: Final = "node"
_HEAD: Final = struct.Struct("<4sI")
_FORMAT: Final = struct.Struct("<4sIQ16sQQ")
_FORMAT_1: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"BNOD"
_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Identity:
    """Who starts."""

    directory: bytes
    """Drawn once, when the directory is made."""
    incarnation: int
    """No earlier start had it, or a greater one."""
    group: int = 0
    bound: int = 0
    """Entry of that group of the repository that gave the id to this directory; 0: not
    known. Who has not come so far cannot say whose id it is."""


def is_new(store: NodeStore) -> bool:
    """Tell whether no node was ever started here."""
    return store.options(NAME) is None


def begin_incarnation(store: NodeStore, draw: Callable[[int], bytes]) -> Identity:
    """Return who the node is, with the number of this start; durable on return.

    `draw` gives random bytes, for the identity of a directory that has none.

    Raises:
        CorruptionError: what is stored is neither.
    """
    stored = store.options(NAME)
    last = _read(stored) if stored is not None else Identity(b"", 0)
    # A directory of the first format had none.
    directory = last.directory or draw(IDENTITY_BYTES)
    who = replace(last, directory=directory, incarnation=last.incarnation + 1)
    if stored is None:
        store.create(NAME, _pack(who))
    else:
        store.open(NAME).alter(_pack(who))
    store.sync()
    return who


def note_bound(store: NodeStore, who: Identity) -> None:
    """Store which entry gave the id to this directory; durable with the next sync."""
    store.open(NAME).alter(_pack(who))


def write_again(store: NodeStore) -> None:
    """Write what is stored once more, to see how long the disk takes for little."""
    stored = store.options(NAME)
    if stored is not None:
        store.open(NAME).alter(stored)


def _pack(who: Identity) -> bytes:
    return _FORMAT.pack(
        _MAGIC, _VERSION, who.incarnation, who.directory, who.group, who.bound
    )


def _read(stored: bytes) -> Identity:
    head = _HEAD.unpack_from(stored) if len(stored) >= _HEAD.size else None
    if head == (_MAGIC, _VERSION) and len(stored) == _FORMAT.size:
        _, _, number, directory, group, bound = _FORMAT.unpack(stored)
        return Identity(directory, number, group, bound)
    if head == (_MAGIC, 1) and len(stored) == _FORMAT_1.size:
        return Identity(b"", _FORMAT_1.unpack(stored)[2])
    raise CorruptionError(
        f"the node's start record has {len(stored)} bytes, which this "
        "version does not know"
    )
