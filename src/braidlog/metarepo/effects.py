"""What a member of the metadata repository asks of its shell."""

from __future__ import annotations

from msgspec import Struct

from braidlog.metarepo.waiting import Answer
from braidlog.raft import Write
from braidlog.wire.messages import Message

__all__ = ["GroupEffects", "Outgoing"]


class Outgoing(Struct, frozen=True):
    """A message to a node, with the payload of its frame."""

    node: int
    message: Message
    payload: bytes = b""


class GroupEffects(Struct, frozen=True):
    """What has to be done now; writes in their order, the rest in any."""

    writes: tuple[Write, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    answers: tuple[Answer, ...] = ()
    committed: int = 0
    """Entries that were applied."""

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(self.writes or self.messages or self.answers or self.committed)
