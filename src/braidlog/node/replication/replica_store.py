"""One replica's stream on the disk of its node: `StreamStorage` over a `NodeStore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from braidlog.logstream.storage import (
    Batch,
    CommitContext,
    Placed,
    StoredBatch,
    StoredStream,
)
from braidlog.store.node_store import STREAM_PREFIX, NodeStore
from braidlog.wire.messages import Run

if TYPE_CHECKING:
    from braidlog._native import LogView

_RUNS_END: Final = 1 << 62


class ReplicaStore:
    """The replica of the cluster's stream `number`; see `StreamStorage`.

    Errors beside those of the protocol: `TrimmedError` and `BeyondEndError` from
    `read` outside of what is there, `FencedError` for an epoch that is over.
    """

    def __init__(self, node: NodeStore, number: int) -> None:
        """Use the stream that `create` made."""
        self.number = number
        self._node = node
        self._log = node.open(f"{STREAM_PREFIX}{number}")
        self.ticket = node.ticket
        self.replicas = node.native
        """Where the core finds the stream."""

    @classmethod
    def create(cls, node: NodeStore, number: int, options: bytes = b"") -> ReplicaStore:
        """Create the stream, empty; durable on return.

        Raises:
            AlreadyExistsError: the node has it.
        """
        node.create(f"{STREAM_PREFIX}{number}", options)
        return cls(node, number)

    @property
    def stored_as(self) -> int:
        """Return its number in the node's log, which is another after `restart`."""
        return self._log.number

    @property
    def options(self) -> bytes:
        """Return what `set_options` stored."""
        return self._node.options(self._log.name) or b""

    def set_options(self, options: bytes) -> None:
        """Replace the options."""
        self._log.alter(options)

    def share_order(self, log: bytes) -> None:
        """Say of which log the stream is one: replay can read those in one pass."""
        self._log.native.share_order(self._log.number, int.from_bytes(log))

    def delete(self) -> None:
        """Delete the stream and all in it; durable on return."""
        self._node.delete(self._log.name)

    def state(self) -> StoredStream:
        """Return where the stream stands."""
        row = self._log.native.state(self._log.number)
        low, committed, following, _, epoch, epochs, context = row
        return StoredStream(
            low, committed, following, epoch, tuple(epochs), CommitContext(*context)
        )

    def append(
        self, epoch: int, batches: Sequence[Batch], *, repeat: bool = False
    ) -> list[Placed]:
        """Give each batch the next LLSNs and write it; repeats are not written."""
        number = self._log.number
        placed = self._log.native.append(number, epoch, batches, repeat=repeat)
        self._log.hurry(sum(map(len, batches)))
        return [Placed(*row) for row in placed]

    def place(self, epoch: int, llsn: int, batches: Sequence[Batch]) -> None:
        """Write batches from `llsn` on, which must be the next LLSN."""
        self._log.native.place(self._log.number, epoch, llsn, batches)
        self._log.hurry(sum(map(len, batches)))

    def commit(self, epoch: int, context: CommitContext) -> None:
        """Write a commit context; readers of the node see what is durable of it."""
        fields = (
            context.version,
            context.glsn_begin,
            context.llsn_begin,
            context.length,
            context.high_watermark,
        )
        self._log.native.commit(self._log.number, epoch, fields)

    def rollback(self, epoch: int, llsn: int) -> None:
        """Drop all from `llsn` on."""
        self._log.native.rollback(self._log.number, epoch, llsn)

    def enter(self, epoch: int) -> None:
        """Enter a greater epoch; it begins at the next LLSN."""
        self._log.native.enter(self._log.number, epoch)
        self._log.hurry(0)

    def trim(self, llsn: int) -> None:
        """Drop all below `llsn`; the space is free after `NodeStore.housekeeping`."""
        self._log.native.trim(self._log.number, llsn)

    def restart(self, llsn: int, producers: Batch = b"") -> None:
        """Forget everything but the epoch; the stream begins anew, empty, at `llsn`."""
        epoch = self.state().epoch
        self._log.restart(epoch, llsn, self.options, producers)

    def producers(self, llsn: int) -> bytes:
        """Return the producer windows of what is stored below `llsn`, for `restart`."""
        return self._log.native.producers(self._log.number, llsn)

    def read(self, begin: int, end: int, bytes_max: int) -> list[StoredBatch]:
        """Return the batches with LLSNs in `begin..end`, the uncommitted tail too."""
        found = self._log.native.read(self._log.number, begin, end, bytes_max)
        return [StoredBatch(*row) for row in found]

    def runs(self, begin: int, end: int) -> list[Run]:
        """Return the commit runs of the committed LLSNs in `begin..end`, cut to it."""
        runs = self._log.native.runs(self._log.number, begin, min(end, _RUNS_END))
        return [Run(*row) for row in runs]

    def llsn_of(self, glsn: int) -> int:
        """Return the first kept LLSN whose GLSN is at least `glsn`."""
        found = self._log.native.glsn_ceil(self._log.number, glsn)
        return self.state().committed if found is None else found[1]

    def glsn_floor(self, glsn: int) -> tuple[int, int] | None:
        """Return the last kept committed record up to `glsn`: (GLSN, LLSN)."""
        return self._log.native.glsn_floor(self._log.number, glsn)

    def glsn_ceil(self, glsn: int) -> tuple[int, int] | None:
        """Return the first kept committed record from `glsn` on: (GLSN, LLSN)."""
        return self._log.native.glsn_ceil(self._log.number, glsn)

    def view(self) -> LogView:
        """Return what a local reader sees: committed and durable records, by LLSN."""
        return self._node.view(self._log.name)
