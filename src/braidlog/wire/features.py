"""Which features an encoded batch needs; they are those of `messages.Feature`.

*Theory of operation.* A node says which ones it knows when it registers and in its
reports. The metadata repository tells everybody which ones all nodes know, and only
those may be used. Whether a batch needs one is in its header:

    0   u32  magic "BRB1"    4  u8  version    6  u16  flags
"""

from __future__ import annotations

import struct
from typing import Final

from braidlog.wire.messages import Feature

_HEAD: Final = struct.Struct("<4s2xH")
_MAGIC: Final = b"BRB1"
_NULLS: Final = 32 | 64
_NONE: Final = Feature(0)
"""Made once: each append is looked at, and a member costs more to make than that."""


def needed(batch: bytes | memoryview) -> Feature:
    """Return the features that who stores or reads an encoded batch has to know.

    None are needed by what is no batch: its storage refuses it.
    """
    if len(batch) < _HEAD.size:
        return _NONE
    magic, flags = _HEAD.unpack_from(batch)
    nulls = magic == _MAGIC and flags & _NULLS
    return Feature.NULL_VALUES if nulls else _NONE
