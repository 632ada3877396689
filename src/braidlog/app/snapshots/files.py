"""Snapshots on disk: a directory for each, and the durable list of those to believe.

    HOST              32 hexadecimal digits that name the host
    list/             the lock, and the manifest: which snapshots there are
    000000000007/     partition-0000.db ..., snapshot.cbor
    new/              the one that is being written
    reserve           space for the next one
    trash/            what is on its way out

*Invariants.* What is listed was synced, renamed to its place, and read back. What is
not listed is not believed, and goes. Nothing that is listed is written to.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from braidlog import _native, durable
from braidlog.app.determinism.codec import decode, encode
from braidlog.app.errors import SnapshotDamagedError
from braidlog.app.execution.state import PartitionState, State, View
from braidlog.errors import CorruptionError, LogError, NewerFormatError

_FORMAT: Final = 1
_FACTS: Final = "snapshot.cbor"
_NEW: Final = "new"
_TRASH: Final = "trash"
_RESERVE: Final = "reserve"
_HASH_BYTES: Final = 16
# What the manifest lists; whose snapshots they are is in its entries.
_OWNER: Final = b"braidlog/app/snp"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is complete, durable, and was read back."""

    number: int
    """Number among the snapshots of this host; never reused."""
    position: int
    """Last position that the state in the snapshot has executed."""
    time: int
    """When its state was fixed, microseconds since the epoch."""
    size: int
    """Bytes of its files."""
    seconds: float
    """Seconds that it took."""
    rate: float
    """Seconds of execution a record had cost on average: for estimates."""
    log: str
    """Id of the log that it belongs to."""
    digest: bytes
    """BLAKE2b-128 of its facts, which have those of the other files."""


Progress: TypeAlias = Callable[[int, int], None]
"""Is called with how much is done, and the total."""


class _Count:
    """Adds up what was done."""

    def __init__(self, progress: Progress | None = None, total: int = 0) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self.add(0)

    def add(self, size: int) -> None:
        if self._progress is not None:
            self._done = min(self._total, self._done + size)
            self._progress(self._done, self._total)


class Image(NamedTuple):
    """The state at a position, held by open views."""

    position: int
    time: int
    views: Sequence[View]
    facts: dict[str, Any]
    """What the host needs to go on: identity, catalog, environment."""


def views_of(partitions: Sequence[PartitionState]) -> list[View]:
    """Open a view of each partition, or of none."""
    with contextlib.ExitStack() as stack:
        views = []
        for partition in partitions:
            views.append(view := partition.view())
            stack.callback(view.close)
        stack.pop_all()
    return views


@contextlib.contextmanager
def close_all(views: Sequence[View]) -> Iterator[None]:
    """Close the views when the work with them is done."""
    try:
        yield
    finally:
        for view in views:
            view.close()


def _digest(path: Path) -> bytes:
    """Hash a file as the device has it, as far as the system can be asked to."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = hashlib.file_digest(file, lambda: blake2b(digest_size=_HASH_BYTES))
    return found.digest()


class SnapshotFiles:
    """The directory of a host's snapshots. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        step: Callable[[str], None] | None = None,
        host: str | None = None,
    ) -> None:
        """Open the directory, creating it, and throw away what is not listed.

        ``step`` is told before each step that a crash may come between. A directory
        that is made is named after the ``host``.

        Raises:
            LockedError: another process has it.
            CorruptionError: the list is damaged, or lost while snapshots are there.
        """
        self.path = path
        self.step = step or (lambda name: None)
        self.damaged: set[int] = set()
        """Numbers of listed snapshots that were found to be damaged."""
        durable.make_directory(path)
        where = path / "list"
        if not (where / "CURRENT").exists() and any(self._numbered()):
            msg = (
                f"the list of snapshots is missing: restore {path}/list, or move "
                f"{path} away"
            )
            raise SnapshotDamagedError(msg, path=str(where))
        self.host = self._name_host(host or os.urandom(16).hex())
        holder = bytes.fromhex(self.host)
        self._list = _native.Listing(where, _OWNER, holder, f"pid {os.getpid()}")
        try:
            self.collect()
        except BaseException:
            self._list.close()
            raise

    def _name_host(self, host: str) -> str:
        name = self.path / "HOST"
        if not name.exists():
            durable.replace(name, f"{host}\n".encode())
        return name.read_text().strip()

    # -- the list ----------------------------------------------------------------

    def listed(self) -> list[Snapshot]:
        """Return the snapshots to believe, in the order of their numbers."""
        return [self._entry(number, data) for number, data in self._list.entries()]

    def _entry(self, number: int, data: bytes) -> Snapshot:
        form, *fields = decode(data)
        if form != _FORMAT:
            msg = f"snapshot {number} has format {form}"
            raise NewerFormatError(msg, found=form, supported=_FORMAT)
        return Snapshot(number, *fields)

    def directory(self, number: int) -> Path:
        """Return where a snapshot is."""
        return self.path / f"{number:012}"

    def _numbered(self) -> list[Path]:
        return [each for each in self.path.iterdir() if each.name.isdigit()]

    # -- taking one --------------------------------------------------------------

    def write(
        self,
        image: Image,
        state: State,
        rate: float,
        progress: Progress | None = None,
    ) -> Snapshot:
        """Store an image and list it: the only place where a snapshot comes to be.

        ``progress`` is told of the bytes that were copied and read back, and of all.

        Raises:
            SnapshotDamagedError: what was read back is not what was written.
            OSError: the disk is full or failed.
        """
        began = time.monotonic()
        count = _Count(progress, 2 * sum(view.size() for view in image.views))
        number = self._list.next_number()
        fresh = self.path / _NEW
        fresh.mkdir()
        files = [
            self._copy(fresh / f"partition-{partition:04}.db", view, count)
            for partition, view in enumerate(image.views)
        ]
        facts = {**image.facts, "format": _FORMAT, "files": files}
        facts |= {"position": image.position, "time": image.time, "number": number}
        data = encode(facts)
        self.step("facts")
        (fresh / _FACTS).write_bytes(data)
        durable.sync(fresh / _FACTS)
        durable.sync(fresh)
        self.step("rename")
        # Not by `durable`: a crash between the two is a step of its own.
        fresh.rename(self.directory(number))
        self.step("sync directory")
        durable.sync(self.path)
        size = len(data) + sum(each[1] for each in files)
        digest = blake2b(data, digest_size=_HASH_BYTES).digest()
        self.step("verify")
        rest = [rate, image.facts["log"], digest]
        draft = Snapshot(number, image.position, image.time, size, 0.0, *rest)
        self._verified(draft, state.hash_of, count)
        self._verify_own(draft, image, state)
        fields = [image.position, image.time, size, time.monotonic() - began, *rest]
        self.step("list")
        self._list.commit([(number, encode([_FORMAT, *fields]))], [])
        self.step("listed")
        return Snapshot(number, *fields)

    def _copy(self, path: Path, view: View, count: _Count) -> list[Any]:
        self.step("copy")
        expected = view.hash()
        self.release(view.size())
        view.copy(path)
        count.add(view.size())
        return [path.name, path.stat().st_size, _digest(path), expected]

    def verify(
        self,
        snapshot: Snapshot,
        hash_of: Callable[[Path], bytes] | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Read a snapshot back, and return its facts; with ``hash_of`` also the state.

        ``progress`` is told before the first file and behind each one.

        Raises:
            SnapshotDamagedError: a file is missing or is not what was written.
        """
        return self._verified(snapshot, hash_of, _Count(progress, snapshot.size))

    def _verified(
        self,
        snapshot: Snapshot,
        hash_of: Callable[[Path], bytes] | None,
        count: _Count,
    ) -> dict[str, Any]:
        try:
            facts = self._read_back(snapshot, hash_of, count)
        except CorruptionError as error:
            self.damaged.add(snapshot.number)
            if isinstance(error, SnapshotDamagedError):
                raise
            raise SnapshotDamagedError(error.message, path=error.path) from error
        return facts

    def _read_back(
        self,
        snapshot: Snapshot,
        hash_of: Callable[[Path], bytes] | None,
        count: _Count,
    ) -> dict[str, Any]:
        where = self.directory(snapshot.number)
        facts_path = where / _FACTS
        self._check(facts_path, snapshot.digest)
        facts: dict[str, Any] = decode(facts_path.read_bytes())
        for name, size, digest, state_hash in facts["files"]:
            path = where / name
            self._check(path, digest, size)
            if hash_of is not None and hash_of(path) != state_hash:
                msg = (
                    f"snapshot {snapshot.number}: {name} has a different state hash "
                    "than was listed"
                )
                raise SnapshotDamagedError(msg, path=str(path))
            count.add(size)
        return facts

    def _check(self, path: Path, digest: bytes, size: int | None = None) -> None:
        try:
            wrong = size is not None and path.stat().st_size != size
            if wrong or _digest(path) != digest:
                msg = f"the checksum of {path.parent.name}/{path.name} differs"
                raise SnapshotDamagedError(msg, path=str(path))
        except OSError as error:
            msg = f"{path.parent.name}/{path.name} cannot be read: {error}"
            raise SnapshotDamagedError(msg, path=str(path)) from error

    def _verify_own(self, snapshot: Snapshot, image: Image, state: State) -> None:
        """Compare what is not part of the state hash, as long as its source is there.

        Raises:
            SnapshotDamagedError: a file has not what the state has.
        """
        for partition, view in enumerate(image.views):
            path = self.directory(snapshot.number) / f"partition-{partition:04}.db"
            try:
                found = state.own_hash_of(path)
            except CorruptionError as error:
                raise SnapshotDamagedError(error.message, path=str(path)) from error
            if found != view.own_hash():
                msg = (
                    f"snapshot {snapshot.number}: {path.name} has a different "
                    "position than was listed"
                )
                raise SnapshotDamagedError(msg, path=str(path))

    # -- letting go --------------------------------------------------------------

    def remove(self, numbers: Sequence[int]) -> None:
        """Take snapshots off the list, then remove their files."""
        if numbers:
            self.step("delist")
            self._list.commit([], list(numbers))
            self.step("delisted")
            self.collect()

    def collect(self) -> None:
        """Remove what is not listed: moved to the trash first, then deleted.

        Nothing is moved while the outcome of an edit of the list is unknown.
        """
        self._list.settle()
        listed = {self.directory(number) for number, _ in self._list.entries()}
        trash = self.path / _TRASH
        orphans = [each for each in self._numbered() if each not in listed]
        orphans += [each for each in [self.path / _NEW] if each.exists()]
        trash.mkdir(exist_ok=True)
        for orphan in orphans:
            self.step("trash")
            shutil.rmtree(trash / orphan.name, ignore_errors=True)
            # Not by `durable`: one sync is enough for all of them.
            orphan.rename(trash / orphan.name)
        if orphans:
            durable.sync(trash)
            durable.sync(self.path)
        for rest in trash.iterdir():
            shutil.rmtree(rest)

    # -- space -------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Keep ``size`` bytes free for the next snapshot.

        Raises:
            OSError: there is not so much space.
        """
        descriptor = os.open(self.path / _RESERVE, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
            elif size:
                os.posix_fallocate(descriptor, 0, size)
            durable.sync(self.path / _RESERVE)
        except OSError:
            os.ftruncate(descriptor, 0)
            raise
        finally:
            os.close(descriptor)

    def release(self, size: int) -> None:
        """Give ``size`` bytes of the reserve back: they are about to be used."""
        with contextlib.suppress(FileNotFoundError):
            path = self.path / _RESERVE
            os.truncate(path, max(0, path.stat().st_size - size))

    def close(self) -> None:
        """Release the directory."""
        with contextlib.suppress(LogError):
            self._list.close()
