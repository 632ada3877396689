"""What all messages have in common."""

from __future__ import annotations

from typing import Annotated, ClassVar, TypeAlias

import msgspec

__all__ = ["LogId", "Message", "Number", "Value"]

# Checked when a message is decoded, and only then.
Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""Positions, identities, epochs, sizes: what the core holds in 63 bits."""
LogId: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
"""Identity of a log."""


class Value(msgspec.Struct, frozen=True, array_like=True):
    """Part of a message."""


class Message(Value, frozen=True, array_like=True):
    """Base of all messages."""

    KIND: ClassVar[int] = 0
