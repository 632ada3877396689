"""Takes the tables of a cluster along in its backup.

Theory of operation: a host that has all of a table keeps the files of one version for
whoever copies them, as it does for a host that joins. So they are pinned, fetched in
parts, checked and let go of; those that an earlier backup has are named again. The
manifests of a pinned version are images: they list just its files.

Files come first, then the cuts of the logs: so the log of the backup goes on from what
the files have, and what is in no file is applied when the restored table is opened. A
trim in between, or a table that comes, goes or begins anew, means newer files, and only
what is new of them is fetched.

Invariants: the files of a table are all of one host. No file is named that is not what
the host had when it looked at all of it. The host that gave the files of the backup
before is asked first: others have cut the same records into other files.

Writing to the place blocks, so threads do it, and fetch through the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from braidlog import _native
from braidlog.backup.layout import (
    BackupIndex,
    BackupLog,
    BackupRunFile,
    BackupSource,
    BackupTable,
    BackupTree,
)
from braidlog.backup.run import BackupRun, Overtaken
from braidlog.backup.tables import RunFiles, TableCut, TableFiles, fitted
from braidlog.client.connection.cluster import Cluster
from braidlog.client.retry import Verdict, verdict_of
from braidlog.errors import (
    CorruptionError,
    LogError,
    RemoteProtocolError,
    UnavailableError,
)
from braidlog.store.threads import in_thread
from braidlog.wire.messages import Message
from braidlog.wire.rows import (
    FetchRun,
    PinnedFile,
    PinnedRuns,
    PinRuns,
    RunPart,
    UnpinRuns,
)
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

__all__ = ["ClusterTables", "CopiedTable"]

T = TypeVar("T", bound=Message)

_ATTEMPTS: Final = 16
# The second pass fetches what was written during the first.
_PASSES: Final = 2
_PART_BYTES: Final = 4 << 20
_PIN_S: Final = 60.0
"""A version is kept for so long after its last part was asked for."""
_PINNING_S: Final = 600.0
"""A host verifies what it was never asked for before it answers."""
_COUNTERS: Final = "COUNTERS"
_BASES: Final = "BASES"
_CURRENT: Final = "CURRENT"
_MANIFEST: Final = "MANIFEST-"
_RUN: Final = ".run"


class _HostError(Exception):
    """A host did not give what it should have; the place is not at fault."""

    def __init__(self, cause: LogError) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table as one host had it; its files are in the place."""

    files: TableFiles
    bases: dict[str, int]
    """Where the indexes begin that the host has built, by tree."""


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A version that a host keeps, with its files by what they are."""

    node: int
    pin: int
    flushed: int
    counters: PinnedFile
    bases: PinnedFile
    manifests: dict[str, PinnedFile]
    """By tree."""
    runs: dict[tuple[str, int], PinnedFile]
    """By tree and number."""


class ClusterTables:
    """Fetches what tables consist of."""

    def __init__(
        self,
        cluster: Cluster,
        run: BackupRun,
        source: BackupSource,
        copied: Callable[[], object],
    ) -> None:
        """Copy for ``run``; ``copied`` is called for each piece of a file."""
        self._cluster = cluster
        self._run = run
        self._copied = copied
        self._files = RunFiles(run, source)
        self.hosts: dict[str, int] = {}
        """The node that gave the files of each table last."""
        if run.base is not None:
            self.hosts.update(run.base.hosts)

    async def take(self) -> list[CopiedTable]:
        """Copy the files of all tables, as of now or later.

        Raises:
            UnavailableError: no host gives the files of a table.
            CorruptionError: they are damaged on all hosts.
        """
        taken: list[CopiedTable] = []
        for _ in range(_PASSES):
            before = self._run.new_bytes
            tables = (await self._cluster.linearize()).metadata.tables
            found = [await self._table(info) for info in tables]
            taken = [each for each in found if each is not None]
            if self._run.new_bytes == before:
                break
        return taken

    async def at(
        self, taken: Iterable[CopiedTable], logs: Iterable[BackupLog]
    ) -> tuple[BackupTable, ...]:
        """Return the tables as they are now, with files that were taken.

        Raises:
            Overtaken: a table is new, or a log begins too late; take them again.
        """
        by_id = {each.files.id: each for each in taken}
        files, cuts = [], []
        for info in (await self._cluster.linearize()).metadata.tables:
            table = by_id.get(info.table.hex())
            if table is None:
                raise Overtaken(info.name, "table")
            cut = _cut(info, table)
            files.append(_without_dropped(table.files, cut.shape))
            cuts.append(cut)
        return fitted(files, cuts, logs)

    # -- asking hosts ------------------------------------------------------------

    async def _table(self, info: TableInfo) -> CopiedTable | None:
        """Copy a table from one of its hosts; None if it was dropped meanwhile."""
        settings, pauses = self._cluster.settings, self._cluster.backoff()
        loop = asyncio.get_running_loop()
        deadline, attempts = loop.time() + settings.timeout_s, 0
        found: TableInfo | None = info
        while found is not None:
            await asyncio.sleep(pauses.pause(settings.share()))
            said: dict[int, LogError] = {}
            last = self.hosts.get(found.table.hex())
            for node in sorted(found.joined, key=lambda node: node != last):
                try:
                    return await self._from(node, found)
                except _HostError as error:
                    said[node] = error.cause
            attempts += 1
            final = [e for e in said.values() if verdict_of(e) is Verdict.FINAL]
            tables = (await self._cluster.linearize()).metadata.tables
            found = next((each for each in tables if each.table == info.table), None)
            if found is not None and final and len(final) == len(said):
                raise final[0]  # Another attempt would find the same.
            # A copy that took long, and failed, is not the last one.
            if attempts >= _ATTEMPTS and loop.time() >= deadline:
                raise _refused(info, said)
        return None

    async def _ask(
        self, node: int, message: Message, kind: type[T], within: float
    ) -> tuple[T, memoryview]:
        try:
            answer, payload = await self._cluster.ask_node(node, message, within=within)
            if not isinstance(answer, kind):
                what = type(answer).__name__
                raise RemoteProtocolError(f"{what} came instead of {kind.__name__}")
        except LogError as error:
            raise _HostError(error) from error
        return answer, payload

    async def _from(self, node: int, info: TableInfo) -> CopiedTable:
        """Copy a table as one host has it."""
        ask = PinRuns(info.table, int(_PIN_S * 1000))
        answer, _ = await self._ask(node, ask, PinnedRuns, _PINNING_S)
        try:
            taken = await self._taken(info, _sorted(node, answer))
        except CorruptionError as error:
            raise _HostError(error) from error
        else:
            self.hosts[taken.files.id] = node
            return taken
        finally:
            # It ends by itself.
            within = self._cluster.settings.attempt_timeout_s
            with contextlib.suppress(_HostError):
                await self._ask(node, UnpinRuns(answer.pin), RunPart, within)

    async def _taken(self, info: TableInfo, pinned: _Pinned) -> CopiedTable:
        counters = await self._whole(pinned, pinned.counters)
        stored = await self._whole(pinned, pinned.bases)
        bases = {
            f"{tree:032x}": base
            for tree, base in _native.table_bases(stored, int.from_bytes(info.table))
        }
        trees = [
            await self._tree(info, pinned, tree)
            for tree in (*sorted(bases), info.tree.hex())
        ]
        files = TableFiles(info.table.hex(), tuple(trees), counters, pinned.flushed)
        return CopiedTable(files, bases)

    async def _tree(self, info: TableInfo, pinned: _Pinned, tree: str) -> BackupTree:
        manifest = pinned.manifests.get(tree)
        if manifest is None:
            raise _HostError(_unexpected(pinned.node, f"no manifest of tree {tree}"))
        image = await self._whole(pinned, manifest)
        flushed, runs = _native.check_image(image, int(tree, 16))
        files = [await self._file(info, pinned, tree, listed) for listed in runs]
        return BackupTree(tree, image, flushed, tuple(files))

    async def _file(
        self,
        info: TableInfo,
        pinned: _Pinned,
        tree: str,
        listed: tuple[int, int, bytes],
    ) -> BackupRunFile:
        known = self._files.known(tree, listed)
        if known is not None:
            return known
        file = pinned.runs.get((tree, listed[0]))
        if file is None or file.bytes != listed[1]:
            raise _HostError(_unexpected(pinned.node, f"no run {listed[0]} of {tree}"))
        pieces = self._pieces(pinned, file, asyncio.get_running_loop())
        write = partial(self._files.write, info.table.hex(), tree, listed, pieces)
        return await in_thread(write)

    # -- fetching ----------------------------------------------------------------

    async def _whole(self, pinned: _Pinned, file: PinnedFile) -> bytes:
        """Fetch a small file."""
        parts: list[bytes] = []
        at = 0
        while at < file.bytes:
            parts.append(await self._part(pinned, file, at))
            at += len(parts[-1])
        data = b"".join(parts)
        _check(pinned, file, zlib.crc32(data))
        return data

    async def _part(self, pinned: _Pinned, file: PinnedFile, at: int) -> bytes:
        size = min(_PART_BYTES, file.bytes - at)
        ask = FetchRun(pinned.pin, file.path, at, size)
        within = self._cluster.settings.timeout_s
        answer, payload = await self._ask(pinned.node, ask, RunPart, within)
        if answer.offset != at or not 0 < len(payload) <= size:
            what = f"{len(payload)} bytes of {file.path!r} at {answer.offset}, not {at}"
            raise _HostError(_unexpected(pinned.node, what))
        self._copied()
        return bytes(payload)

    def _pieces(
        self, pinned: _Pinned, file: PinnedFile, loop: asyncio.AbstractEventLoop
    ) -> Iterator[bytes]:
        """Yield the pieces of a file in a thread, and check them."""
        at = checksum = 0
        while at < file.bytes:
            fetching = asyncio.run_coroutine_threadsafe(
                self._part(pinned, file, at), loop
            )
            try:
                # Longer than the question takes: a loop that stopped answers nothing.
                piece = fetching.result(2 * self._cluster.settings.timeout_s)
            except (CancelledError, TimeoutError) as error:
                fetching.cancel()
                msg = f"fetching {file.path!r} from node {pinned.node} was interrupted"
                raise _HostError(UnavailableError(msg)) from error
            checksum = zlib.crc32(piece, checksum)
            at += len(piece)
            yield piece
        _check(pinned, file, checksum)


def _refused(info: TableInfo, said: dict[int, LogError]) -> UnavailableError:
    why = "; ".join(f"node {node}: {error.message}" for node, error in said.items())
    msg = f"no host of table {info.name!r} gives its files: {why}"
    return UnavailableError(msg).advising(
        "`braidlog cluster status` shows the hosts of the table"
    )


def _check(pinned: _Pinned, file: PinnedFile, checksum: int) -> None:
    if checksum != file.checksum:
        msg = f"{file.path!r} is not what node {pinned.node} had when it was pinned"
        raise _HostError(CorruptionError(msg))


def _unexpected(node: int, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"node {node} gave {what}")


def _sorted(node: int, answer: PinnedRuns) -> _Pinned:
    """Tell the files of a pinned version apart.

    Raises:
        _HostError: this version knows nothing of one of them, or one is missing.
    """
    plain: dict[str, PinnedFile] = {}
    manifests: dict[str, PinnedFile] = {}
    runs: dict[tuple[str, int], PinnedFile] = {}
    for file in answer.files:
        tree, _, name = file.path.rpartition("/")
        number = name.removesuffix(_RUN)
        if not tree and name in {_COUNTERS, _BASES}:
            plain[name] = file
        elif tree and name.startswith(_MANIFEST):
            manifests[tree] = file
        elif tree and number != name and number.isdecimal():
            runs[tree, int(number)] = file
        elif name != _CURRENT:
            raise _HostError(_unexpected(node, f"the unknown file {file.path!r}"))
    if len(plain) < len({_COUNTERS, _BASES}):
        raise _HostError(_unexpected(node, f"no {_COUNTERS} or no {_BASES}"))
    return _Pinned(
        node,
        answer.pin,
        answer.flushed,
        plain[_COUNTERS],
        plain[_BASES],
        manifests,
        runs,
    )


# -- the catalog -----------------------------------------------------------------------


def _cut(info: TableInfo, taken: CopiedTable) -> TableCut:
    """Return a table as the catalog has it, with the indexes as its host has them."""
    pin = taken.files.retained + 1
    return TableCut(
        info.table.hex(),
        info.name,
        info.log.hex(),
        info.created,
        info.begin,
        info.tree.hex(),
        info.options.decode(),
        pin,
        tuple(_index(index, taken, pin) for index in info.indexes),
        info.replicas,
    )


def _index(index: IndexInfo, taken: CopiedTable, pin: int) -> BackupIndex:
    tree, base = index.tree.hex(), taken.bases.get(index.tree.hex())
    field = index.field.decode()
    if index.status is IndexStatus.ABORTED:
        reason = index.reason or "it could not be built"
        return BackupIndex(index.name, field, tree, False, pin, reason)
    # One that this host has not built yet is built anew, wherever another host is.
    if base is None:
        return BackupIndex(index.name, field, tree, False, pin)
    return BackupIndex(index.name, field, tree, True, base + 1)


def _without_dropped(files: TableFiles, shape: frozenset[str]) -> TableFiles:
    trees = tuple(tree for tree in files.trees if tree.id in shape)
    return TableFiles(files.id, trees, files.counters, files.retained)
