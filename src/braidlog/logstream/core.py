"""State of one replica, and what every stage does with it.

The functions of the stages are in `sequencer`, `backup`, `committer`, `epochs`,
`fetch`, `source`, `reading` and `reporter`; they take this state as their first
argument.
`braidlog.logstream.replica` is the way in.

Where the stream stands, what of that is durable and who waits is in the core
(`lane::stream`), which does what every append does while the replica is *settled*. Both
are one object. Whatever else happens unsettles it first.

*Invariants.* low <= committed <= next; the epoch, the version, the high watermark and
what is committed never fall, except that a copy may start over; what is committed is
never rolled back; only a running primary has waiters that are not repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct, field

from braidlog._native import Stream
from braidlog.errors import CorruptionError, LogError
from braidlog.logstream.effects import Answer, Limits, Outgoing, Request
from braidlog.logstream.errors import check
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import Batch, CommitContext, StreamStorage
from braidlog.wire.messages import Appended, Message, Run, StreamConfig

__all__ = ["Core", "Fetching", "Waiter"]

STOPPED = (ReplicaState.INVALID, ReplicaState.FAILED)
SERVING = (ReplicaState.RUNNING, ReplicaState.SEALED)


@dataclass(slots=True)
class Waiter:
    """A repeat that waits until what it repeats is committed."""

    request: Request
    llsn: int
    count: int

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


class Core(Stream):
    """State of a replica; see the module."""

    def __new__(
        cls, node: int, stream: int, storage: StreamStorage, limits: Limits
    ) -> Core:
        """Start from what the disk holds; all of it is durable."""
        del node
        bytes_max, interval = limits.uncommitted_bytes_max, limits.probe_interval
        return super().__new__(cls, stream, storage, bytes_max, interval)

    def __init__(
        self, node: int, stream: int, storage: StreamStorage, limits: Limits
    ) -> None:
        """Be in no epoch yet."""
        del stream
        self.node = node
        self.storage = storage
        self.limits = limits
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
        self.repeats: list[Waiter] = []
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

    @property
    def context(self) -> CommitContext:
        """Return the latest commit."""
        return CommitContext(*self.latest)

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
    def lacks_nothing(self) -> bool:
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
            and not self.waiting
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
        self.take_over(self.storage)
        self.lacks_room = ""

    def synced(self, ticket: int) -> None:
        """Note that every write up to `ticket` is durable."""
        if self.state is not ReplicaState.FAILED:
            self.note_synced(ticket)

    def commit(self, run: Run, version: int, high_watermark: int) -> None:
        """Write a commit context; it continues the last one."""
        begin, glsn, length = run.llsn_begin, run.glsn_begin, run.length
        context = self.context_of(begin, glsn, length, version, high_watermark)
        self.storage.commit(self.epoch, CommitContext(*context))
        self.wrote()
        self.out.advanced = True

    def rollback(self, llsn: int) -> None:
        """Drop what lies behind `llsn`; it never was."""
        check(llsn >= self.committed, "a rollback of what is committed")
        if llsn < self.next:
            self.storage.rollback(self.epoch, llsn)
            self.take_back(llsn)
            self.wrote()

    def restart(self, llsn: int, producers: Batch = b"") -> None:
        """Forget everything and begin anew at `llsn`."""
        self.storage.restart(llsn, producers)
        self.damaged = False
        self.take_back(llsn)
        self.trimmed = 0
        self.wrote()

    # --- effects

    def send(self, node: int, message: Message, batches: Sequence[Batch] = ()) -> None:
        """Send a message that promises nothing."""
        self.out.messages.append((node, message, tuple(batches)))

    def answer(self, request: Request, answer: Appended | LogError) -> None:
        """Answer an append."""
        self.out.answers.append((request, answer))
