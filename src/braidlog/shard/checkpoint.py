"""A state of a shard that is stored beside its log, so that a start need not read all.

The base of a group is where its log begins, which may be long ago. A checkpoint is the
state of the present, and what Raft has to know of the entries up to there: their terms
and the memberships among them. The layout is in `docs/formats.md`.

*Invariants.* A checkpoint is of entries that are committed, durable on this node, and
applied. So nothing takes them back, and a start that finds it goes on from there.
"""

from __future__ import annotations

from typing import Final

import msgspec

from braidlog.errors import CorruptionError
from braidlog.raft import Mark, codec
from braidlog.raft.errors import RaftMessageError

__all__ = ["Checkpoint"]

_FORMAT: Final = b"BSC1"


class _Stored(msgspec.Struct, array_like=True):
    """A checkpoint as it is stored."""

    index: int
    runs: tuple[tuple[int, int], ...]
    memberships: tuple[bytes, ...]
    state: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Stored)


class Checkpoint(msgspec.Struct, frozen=True):
    """See the module."""

    mark: Mark
    state: bytes
    """`ShardState` with the entries up to the mark."""

    def encode(self) -> bytes:
        """Return it as bytes."""
        mark = self.mark
        memberships = tuple(codec.encode(each) for each in mark.memberships)
        stored = _Stored(mark.index, mark.runs, memberships, self.state)
        return _FORMAT + _encoder.encode(stored)

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Read one.

        Raises:
            CorruptionError: these are not the bytes of a checkpoint.
        """
        if data[: len(_FORMAT)] != _FORMAT:
            raise CorruptionError("not a checkpoint of a shard")
        try:
            found = _decoder.decode(memoryview(data)[len(_FORMAT) :])
            memberships = tuple(map(codec.decode_membership, found.memberships))
        except (msgspec.MsgspecError, UnicodeDecodeError, RaftMessageError) as error:
            msg = f"the checkpoint of a shard cannot be read: {error}"
            raise CorruptionError(msg) from error
        return cls(Mark(found.index, found.runs, memberships), found.state)
