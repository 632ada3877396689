"""What a node keeps about itself: the number of its start.

Reports of an earlier start may still be on their way when a node is back; the number
tells them apart. It is stored before the node says anything.
"""

from __future__ import annotations

import struct
from typing import Final

from braidlog.errors import CorruptionError
from braidlog.storage.streams import NodeStore

__all__ = ["begin_incarnation", "is_new"]

_NAME: Final = "node"
_FORMAT: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"BNOD"
_VERSION: Final = 1


def is_new(store: NodeStore) -> bool:
    """Tell whether no node was ever started here."""
    return store.options(_NAME) is None


def begin_incarnation(store: NodeStore) -> int:
    """Return a number that no earlier start had; durable on return.

    Raises:
        CorruptionError: what is stored is no such number.
    """
    stored = store.options(_NAME)
    number = 1 if stored is None else _read(stored) + 1
    options = _FORMAT.pack(_MAGIC, _VERSION, number)
    if stored is None:
        store.create(_NAME, options)
    else:
        store.open(_NAME).alter(options)
    store.sync()
    return number


def _read(stored: bytes) -> int:
    if len(stored) != _FORMAT.size:
        msg = f"{len(stored)} bytes stand for the start of the node"
        raise CorruptionError(msg)
    magic, version, number = _FORMAT.unpack(stored)
    if (magic, version) != (_MAGIC, _VERSION):
        msg = "the start of the node is not stored as this build stores it"
        raise CorruptionError(msg)
    return int(number)
