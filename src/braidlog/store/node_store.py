"""The directory of a cluster node: one write-ahead log, its streams by name.

*Theory of operation.* Everything that a node must not forget is a stream of one
write-ahead log: its replicas (``stream.<number>``), the log of each Raft group of the
metadata repository it belongs to (``group.<number>``), and those of the groups of
shards (``shard.<stream>``, and ``shard.<stream>.<generation>`` of a member that came
later). All calls but `NodeStore.create` and `delete` write
to memory; one sync, in whatever thread, makes everything before it durable at once.
`ticket` and `durable` are the two numbers with which a shell tells when: what was
called before `ticket()` returned `t` survives a crash once `durable() >= t`.

*Invariants.* Calls become durable in their order. A name that `names` gives was
created durably. After a failed write every call raises `StoreFailedError`.

With a `MemoryDisk` nothing here uses threads, clocks or chance: `sync` does it all in
the calling thread, and what is on the disk is a function of the calls, of ``entropy``
and of the disk's seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from typing_extensions import Buffer

from braidlog import _native
from braidlog.errors import CorruptionError, NotFoundError
from braidlog.store.backend import WriterBackend
from braidlog.store.space import clean_if_full

STREAM_PREFIX: Final = "stream."
GROUP_PREFIX: Final = "group."
SHARD_PREFIX: Final = "shard."


ScrubPlace: TypeAlias = tuple[int, int, int]
"""Segment, offset and ordinal of its next frame; (n, 0, 0) begins segment n."""


SEGMENTS_END: Final = (1 << 64) - 1
"""No segment has this number."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """What a look at old segments has seen."""

    next: ScrubPlace
    """Where to go on."""
    bytes: int
    """Bytes that were checked."""
    damage: CorruptionError | None
    """Where what is on the disk is not what was written; None if it is."""
    lost: dict[int, int]
    """Streams (as numbered in the log) with the first LLSN that cannot be read."""


def shard_name(stream: int, generation: int) -> tuple[int, str]:
    """Return number and prefix of the log of a member of a shard.

    The first members are ``shard.<stream>``, later ones
    ``shard.<stream>.<generation>``.
    """
    if generation:
        return generation, f"{SHARD_PREFIX}{stream}."
    return stream, SHARD_PREFIX


class StoredLog:
    """One stream of the node's log: what has it as its own calls this."""

    def __init__(
        self,
        native: _native.Replicas,
        name: str,
        log_id: int,
        number: int,
        hurry: Callable[[int], None],
    ) -> None:
        """Stand for the log `log_id`, which is stream `number` of the directory now.

        `hurry` is told of bytes that were written and for whose sync somebody waits.
        """
        self.hurry = hurry
        self.native = native
        self.name = name
        self._log_id = log_id
        self.number = number

    def alter(self, options: bytes) -> None:
        """Replace the options."""
        self.native.alter(self._log_id, options)
        self.hurry(len(options))

    def restart(
        self, epoch: int, first: int, options: bytes, producers: Buffer = b""
    ) -> None:
        """Forget everything; the next record is `first`. One step, also in a crash."""
        self.number = self.native.restart(
            self._log_id, epoch, first, options, producers
        )
        self.hurry(len(options))


class NodeStore:
    """A node's directory, open for writing."""

    def __init__(
        self,
        path: Path | str,
        *,
        entropy: int,
        disk: _native.MemoryDisk | None = None,
        now: Callable[[], int] = lambda: 0,
        **limits: Any,
    ) -> None:
        """Open, creating the directory if there is none.

        `entropy` is a random number of 64 bits; `now` gives microseconds since the
        epoch and dates new logs. `limits` are those of `braidlog.open`:
        ``segment_bytes``, ``wal_bytes_max``, ``sync_method``, ``unsynced_bytes_max``,
        ``recent_bytes_max``, ``index_bytes_max``.
        """
        self._now = now
        limits |= {"entropy": entropy, "disk": disk}
        self._backend = WriterBackend(Path(path), limits)
        self._store, self.report = self._backend.store, self._backend.report
        self.native = self._store.replicas()
        """What the core calls it."""
        # Each turn and each write asks for them, so there is no step in between.
        self.ticket: Callable[[], int] = self.native.ticket
        """Return a number: all calls so far are durable once that much is synced."""
        self.durable: Callable[[], int] = self.native.durable
        """Return the number up to which everything is durable."""
        self.hurried: Callable[[], int] = self.native.hurried
        """Return about how many bytes were written for whose sync somebody waits.

        If it has not risen, what is unsynced are commits, which go with what is next.
        """

    # -- catalog -----------------------------------------------------------------

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the logs that begin with `prefix`, in order."""
        return sorted(name for name in self._store.state() if name.startswith(prefix))

    def streams(self) -> list[int]:
        """Return the numbers of the cluster's streams that have a replica here."""
        names = self.names(STREAM_PREFIX)
        return sorted(int(name.removeprefix(STREAM_PREFIX)) for name in names)

    def groups(self, prefix: str = GROUP_PREFIX) -> list[int]:
        """Return the numbers of the Raft groups that have a log here."""
        # Without options a group was not created to the end.
        rows = self._store.state()
        names = (name for name in rows if name.startswith(prefix))
        numbers = (n.removeprefix(prefix) for n in names if rows[n][3])
        return sorted(int(number) for number in numbers if number.isdecimal())

    def shard_members(self) -> list[tuple[int, int]]:
        """Return the shards that have a member here, and which of them it is."""
        first = ((number, 0) for number in self.groups(SHARD_PREFIX))
        rows = self._store.state()
        later: list[tuple[int, int]] = []
        for name in self.names(SHARD_PREFIX):
            number, _, generation = name.removeprefix(SHARD_PREFIX).partition(".")
            if rows[name][3] and number.isdecimal() and generation.isdecimal():
                later.append((int(number), int(generation)))
        return sorted((*first, *later))

    def options(self, name: str) -> bytes | None:
        """Return the options of a log, None if there is no such log."""
        row = self._store.entry(name)
        return None if row is None else bytes(row[3])

    def open(self, name: str) -> StoredLog:
        """Return the log of that name.

        Raises:
            NotFoundError: there is none.
        """
        row = self._store.entry(name)
        if row is None:
            raise NotFoundError(f"this node has no log {name!r}")
        return StoredLog(self.native, name, row[0], row[1], self.native.hurry)

    def create(self, name: str, options: bytes = b"") -> StoredLog:
        """Create a log; durable on return, with everything before it.

        Raises:
            AlreadyExistsError: there is one of that name.
        """
        # Names are unique here, and an id must not come from chance.
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        log_id = int.from_bytes(digest)
        self.native.create(name, log_id, options, self._now())
        return self.open(name)

    def delete(self, name: str) -> None:
        """Delete a log; durable on return, with everything before it.

        Raises:
            NotFoundError: there is none.
        """
        row = self._store.entry(name)
        if row is None:
            raise NotFoundError(f"this node has no log {name!r}")
        self._store.delete_log(row[0])

    def clock(self) -> int:
        """Return the time in microseconds since the epoch, as it was given."""
        return self._now()

    # -- durability --------------------------------------------------------------

    def sync(self) -> int:
        """Make everything so far durable in this thread; return `durable()`."""
        self.native.flush()
        return self.native.durable()

    def start_syncer(self, notify: int = -1) -> None:
        """Start a thread that syncs what is written, once.

        After each sync it adds 1 to the eventfd `notify`, which it closes at its end.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        self._backend.start_syncer(notify)

    # -- space -------------------------------------------------------------------

    def housekeeping(self) -> int:
        """Make a spare segment if one is due, drop dead ones; return how many.

        When space is running out, what is alive in old segments is copied forward.
        Blocks for as long as the disk takes; any thread may do it.
        """
        clean_if_full(self._store)
        self._store.prepare_slot()
        return self.native.reclaim()

    def provision(self, size: int) -> int:
        """Make `size` bytes of segments ready, as far as there is room; say how many.

        Segments are otherwise made shortly before they are needed, which takes time
        and processor from who writes. Blocks for as long as the disk takes.
        """
        return self._store.provision(size)

    def start_housekeeper(self) -> None:
        """Start a thread that calls `housekeeping` every second, and when it is due.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        self._backend.start_housekeeper(self.housekeeping, self.housekeeping)

    def clean(self, target: int, live_max: float = 0.5) -> tuple[int, int]:
        """Free segments by copying what little is alive in them; see the core."""
        return self._store.clean(target, live_max)

    def scrub(
        self, place: ScrubPlace, bytes_max: int, *, before: int = SEGMENTS_END
    ) -> Scrubbed | None:
        """Check about `bytes_max` bytes of one sealed segment from `place` on.

        Nothing is taken from memory. None means that no sealed segment is left that is
        older than segment `before`. Where one is damaged, the next one comes next.

        Raises:
            UnavailableError: the files cannot be read for another reason.
        """
        found = self.native.scrub(place, before, bytes_max)
        if found is None:
            return None
        following, size, damage = found
        if damage is None:
            return Scrubbed(following, size, None, {})
        path, offset, reason, lost = damage
        msg = f"{path} at offset {offset}: corrupt: {reason}"
        error = CorruptionError(msg, path=path, offset=offset)
        return Scrubbed(following, size, error, dict(lost))

    def stats(self) -> dict[str, int]:
        """Return figures for people and metrics."""
        return self._store.stats()

    def view(self, name: str) -> _native.LogView:
        """Return what a local reader of a log sees: committed and durable records."""
        return self._store.view(self.open(name).number)

    def close(self, timeout: float | None = None) -> None:
        """Make everything durable and release the directory. Idempotent."""
        self._backend.close(timeout)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all logs."""
        return iter(self.names())
