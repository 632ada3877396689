"""What a node asks of its shell: one immutable object for all inputs since the last.

The shell may do the parts in any order and in parallel, with these exceptions:

- Writes reach the disk in the order of their numbers. Within one write: base, then
  entries, then hard state. A write whose entries begin at `i` discards everything at
  and behind `i`; a write with `reset` discards the whole log first.
- Base states and committed entries are applied in the order in which they come, the
  base of one object before its entries.

Everything in `messages` may be sent at once, lost, repeated or reordered. A message
that promises something durable only appears after `RaftNode.durable` was called for the
write that it depends on (asynchronous storage writes of etcd raft).
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from braidlog.raft.log import Frame
from braidlog.raft.messages import Message
from braidlog.raft.state import Base, Entry, HardState

__all__ = ["Effects", "ReadFailed", "ReadState", "Role", "SoftState", "Write"]


class Role(Enum):
    """What a node does in its group."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"
    REMOVED = "removed"


class Write(Struct, frozen=True):
    """Something to store. `RaftNode.durable(number)` says that it is on the disk.

    With `base` and no `reset`, entries up to `base.index` may be dropped once the base
    is durable, and not before.
    """

    number: int
    hard_state: HardState | None = None
    base: Base | None = None
    reset: bool = False
    entries: tuple[Entry, ...] = ()


class ReadState(Struct, frozen=True):
    """A state that has applied `index` answers the read `context` linearizably."""

    context: int
    index: int


class ReadFailed(Struct, frozen=True):
    """The read was not confirmed; it may be asked again."""

    context: int


class SoftState(Struct, frozen=True):
    """What is worth telling and need not be stored."""

    role: Role
    term: int
    leader: int
    epoch: int
    commit: int


class Effects(Struct, frozen=True):
    """What has to be done now; see the module for the order."""

    write: Write | None = None
    messages: tuple[Message | Frame, ...] = ()
    """To send; what every append needs is in its bytes already."""
    install: Base | None = None
    """Replace the state machine by this state, then report `applied(index)`."""
    committed: tuple[Entry, ...] = ()
    """Apply these, then report `applied(last index)`."""
    reads: tuple[ReadState | ReadFailed, ...] = ()
    soft_state: SoftState | None = None
    """Set when it differs from the last one."""

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(
            self.write
            or self.messages
            or self.install
            or self.committed
            or self.reads
            or self.soft_state
        )


NOTHING = Effects()
