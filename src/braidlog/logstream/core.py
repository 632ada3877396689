"""State of one replica, and what every stage does with it.

The functions of the stages are in `sequencer`, `backup`, `committer`, `epochs`,
`fetch`, `source`, `reading` and `reporter`; they take this state as their first
argument.
`braidlog.logstream.replica` is the way in.

*Invariants.* low <= committed <= next; the epoch, the version, the high watermark and
what is committed never fall, except that a copy may start over; what is committed is
never rolled back; only a running primary has waiters that are not repeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from braidlog.errors import CorruptionError, LogError
from braidlog.logstream.durable import Durable, Mark
from braidlog.logstream.effects import Answer, Limits, Outgoing, Request
from braidlog.logstream.errors import check, fail
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import (
    Batch,
    CommitContext,
    StoredStream,
    StreamStorage,
)
from braidlog.wire.messages import Appended, Message, Run, StreamConfig, StreamReport

__all__ = ["Core", "Fetching", "Waiter"]

STOPPED = (ReplicaState.INVALID, ReplicaState.FAILED)
SERVING = (ReplicaState.RUNNING, ReplicaState.SEALED)


@dataclass(slots=True)
class Waiter:
    """An append that waits until it is committed."""

    request: Request
    llsn: int
    count: int
    size: int

    @property
    def end(self) -> int:
        """Return the LLSN behind the batch."""
        return self.llsn + self.count


@dataclass(slots=True)
class Fetching:
    """The one fetch that may be on its way, and when the next may go."""

    number: int = 0
    peer: int = 0
    """Node that was asked; 0: nothing is on its way."""
    begin: int = 0
    committed_only: bool = True
    deadline: float = 0.0
    not_before: float = 0.0
    turn: int = 0
    """Which of the sources is next."""


class Outbox(Struct):
    """Effects that the node has not taken yet."""

    messages: list[Outgoing] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    advanced: bool = False
    report_due: bool = True
    reported: StreamReport | None = None


class Core:
    """State of a replica; see the module."""

    def __init__(
        self, node: int, stream: int, storage: StreamStorage, limits: Limits
    ) -> None:
        """Start from what the disk holds; all of it is durable."""
        self.node = node
        self.stream = stream
        self.storage = storage
        self.limits = limits
        self.now = 0.0
        self.state = ReplicaState.STARTING
        self.config: StreamConfig | None = None
        self.features = 0
        """`Feature`s that all nodes of the cluster know."""
        self.damaged = False
        """Whether some record here turned out to be no longer what was written."""
        self.met: CorruptionError | None = None
        """Damage that a read went no further than, and that was not reported yet."""
        self.entered = False
        """Whether the epoch of the configuration was written here."""
        self.trim = 0
        """First GLSN that is kept, as far as this replica was told; 0: unknown."""
        self.trimmed = 0
        """How much of that was done."""
        self.waiters: deque[Waiter] = deque()
        self.repeats: list[Waiter] = []
        self.waiting_bytes = 0
        self.probe_at = 0.0
        self.heard_end = 0
        """How far the primary of this epoch has written, as far as is known."""
        self.announced = 0, 0
        """A later epoch, and what its primary has written in it, as far as is known."""
        self.refused: LogError | None = None
        """Why the storage took no entries, until all that is known of is here."""
        self.behind = False
        """Whether a cut went by that could not be applied."""
        self.asked = 0
        """How often the reports asked for what was missed."""
        self.ask_at = 0.0
        self.dropped = False
        """Whether a configuration came without this replica."""
        self.lacks_room = ""
        """What the disk said when it had no room; empty since something was written."""
        self.retry_at = 0.0
        """When what found no room is tried again."""
        # Numbers of an earlier start should not come again: its answers may be late.
        self.fetching = Fetching(number=storage.ticket())
        self.out = Outbox()
        self._take(storage.state())
        self.durable = Durable(Mark(self.next, self.context.version, self.epoch))

    def _take(self, stored: StoredStream) -> None:
        self.low = stored.low
        self.committed = stored.committed
        self.next = stored.next
        self.epoch = stored.epoch
        self.context = stored.context

    # --- who is who

    @property
    def stopped(self) -> bool:
        """Tell whether the replica serves and promises nothing."""
        return self.dropped or self.state in STOPPED

    @property
    def is_member(self) -> bool:
        """Tell whether cuts of the configured epoch need this replica."""
        return self.config is not None and self.node in self.config.replicas

    @property
    def is_primary(self) -> bool:
        """Tell whether this replica gives positions in the configured epoch."""
        return self.config is not None and self.config.replicas[0] == self.node

    @property
    def is_catching_up(self) -> bool:
        """Tell whether the log still has to be brought to where the epoch starts."""
        return self.state is ReplicaState.CATCHING_UP and not self.entered

    @property
    def settled(self) -> bool:
        """Tell whether nothing is missed here that is known of, and nothing to trim."""
        return (
            self.state in SERVING
            and (self.trim <= 1 or self.trimmed >= self.trim)
            and self.heard_end <= self.next
            and not self.behind
        )

    @property
    def resting(self) -> bool:
        """Tell whether nothing is awaited, so that nothing follows from time alone."""
        return (
            self.serving
            and not self.waiters
            and not self.behind
            and not self.lacks_room
            and not self.fetching.peer
            and (self.is_primary or self.heard_end <= self.next)
        )

    @property
    def serving(self) -> bool:
        """Tell whether the replica has durably entered the configured epoch."""
        return self.state in SERVING

    # --- writes

    def wrote(self) -> None:
        """Take over where the storage stands now."""
        self._take(self.storage.state())
        self.lacks_room = ""
        if not self.low <= self.committed <= self.next:
            fail("positions are out of order")
        mark = Mark(self.next, self.context.version, self.epoch)
        self.durable.note(self.storage.ticket(), mark)

    def synced(self, ticket: int) -> None:
        """Note that every write up to `ticket` is durable."""
        if self.state is not ReplicaState.FAILED:
            self.durable.synced(ticket)

    def commit(self, run: Run, version: int, high_watermark: int) -> None:
        """Write a commit context; it continues the last one."""
        if version < self.context.version:
            fail("the version falls")
        if run.llsn_begin != self.committed:
            fail("a commit leaves something out")
        if run.llsn_begin + run.length > self.next:
            fail("a commit of nothing")
        if run.glsn_begin < self.context.glsn_end:
            fail("the GLSN falls")
        context = CommitContext(
            version,
            run.glsn_begin,
            run.llsn_begin,
            run.length,
            max(high_watermark, self.context.high_watermark),
        )
        self.storage.commit(self.epoch, context)
        self.wrote()
        self.out.advanced = True

    def rollback(self, llsn: int) -> None:
        """Drop what lies behind `llsn`; it never was."""
        check(llsn >= self.committed, "a rollback of what is committed")
        if llsn < self.next:
            self.storage.rollback(self.epoch, llsn)
            self.durable.cut(llsn)
            self.wrote()

    def restart(self, llsn: int, producers: Batch = b"") -> None:
        """Forget everything and begin anew at `llsn`."""
        self.storage.restart(llsn, producers)
        self.damaged = False
        self.durable.cut(llsn)
        self.trimmed = 0
        self.wrote()

    # --- effects

    def send(self, node: int, message: Message, batches: Sequence[Batch] = ()) -> None:
        """Send a message that promises nothing."""
        self.out.messages.append((node, message, tuple(batches)))

    def answer(self, request: Request, answer: Appended | LogError) -> None:
        """Answer an append."""
        self.out.answers.append((request, answer))
