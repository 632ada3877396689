"""One table that this node keeps: opened or copied, then following its log.

*Theory of operation.* One task takes the table through its life. It opens what is here,
or copies it from a host that has all of it, and then applies the log. It is made anew
of the log only if no other host has all of it, or none gives it for a while. A second
task flushes, moves the pin of this node, and merges. A third builds indexes. What
breaks the table ends all of them: it is closed, the repository is told, and it is
copied anew.

The node answers from a table once it has applied everything that was committed when it
was opened. So a node that restarts, or follows the log from its start, never answers
with what was replaced long ago. Nor does it answer before the log has shown the last
record that the table counted: after a rescue the log may have another one there, or end
before the table. Then the table is copied or made anew, as after any damage.

*Invariants.* One piece of the log is applied at a time, in order. The pin is moved to
no position that is not in files: whoever makes a table anew of the log first moves it
back to where the table begins, and sees that the log is still there. Until then what is
here stays. Nothing is answered from a table that cannot be read,
unless no other node has all of it: then it answers what it can.
"""
# One file: the life of a table, whose tasks end one another.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from braidlog.client.read.merge_reader import MergeReader
from braidlog.client.retry import Backoff
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    NotReadyError,
    TrimmedError,
    UnavailableError,
)
from braidlog.metarepo.events import Event
from braidlog.metarepo.machine.tables import pin_name
from braidlog.node.metrics.event_log import tell
from braidlog.node.metrics.status import HostedStatus
from braidlog.node.tables.counters import TableCounters
from braidlog.node.tables.engine import Engine, HostedTable, LogPiece
from braidlog.node.tables.feed import Feed
from braidlog.node.tables.memory import TableMemory
from braidlog.node.tables.questions import Questions
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.table_copy import TableCopy
from braidlog.node.tables.worker import Worker
from braidlog.wire.commands import ChangeTables, CursorChange, SetCursor, SettleHost
from braidlog.wire.tables import IndexInfo, IndexStatus, SettleIndex, TableInfo

__all__ = ["HostParts", "HostState", "TableHost"]

_log = logging.getLogger(__name__)

_MERGES = 8
"""Merges of a table in a row, before what is due to it otherwise."""


class HostState(Enum):
    """How far a table is on this node."""

    OPENING = "opening"
    COPYING = "copying"
    CATCHING_UP = "catching up"
    SERVING = "serving"
    DAMAGED = "damaged"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class HostParts:
    """What all tables of a node share."""

    node: int
    engine: Engine
    worker: Worker
    """For what is over soon: applying, reading."""
    slow: Worker
    """For what takes long: files, and indexes."""
    building: asyncio.Semaphore
    merging: asyncio.Semaphore
    """Builds and merges leave threads for flushes, opens and copies."""
    memory: TableMemory
    questions: Questions
    feed: Feed
    settings: TableSettings
    counters: TableCounters
    share: Callable[[], float]
    """Draws a number in 0..1."""
    advanced: Callable[[bytes], None]
    """Called when a table has applied more, or its state has changed."""


class _BrokenError(Exception):
    """The table here cannot go on, and is copied anew."""

    def __init__(self, cause: LogError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class TableHost:
    """Keeps one table."""

    def __init__(self, info: TableInfo, parts: HostParts) -> None:
        """Prepare; `start` begins."""
        self.info = info
        self.state = HostState.OPENING
        self.why = ""
        self._parts = parts
        self._table: HostedTable | None = None
        self._task: asyncio.Task[None] | None = None
        self._broken: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        """Set when the catalog says something else of the table."""
        self._flushing = asyncio.Lock()
        self._pinned_at = 0
        """Where its pin stands; 0: not known."""
        self._goal = 0
        """What it has to have applied before it serves."""
        self._copying: TableCopy | None = None
        self._figures: dict[str, int | str] = {}
        self._damaged = False
        """Whether what is here is to be replaced by a copy."""
        self._refused_since: float | None = None
        """Since when no other host has given anything of a copy that is needed."""

    # --- to look at

    @property
    def table(self) -> HostedTable:
        """Return the table, if it is to be answered from.

        Raises:
            NotReadyError: it is not.
        """
        if self._table is None or self.state is not HostState.SERVING:
            raise self.not_ready()
        return self._table

    def not_ready(self) -> NotReadyError:
        """Return why nothing is answered from it."""
        why = f": {self.why}" if self.why else ""
        msg = (
            f"node {self._parts.node} does not serve table {self.info.name!r} now, it "
            f"is {self.state.value}{why}"
        )
        return NotReadyError(msg)

    @property
    def applied(self) -> int:
        """Return up to where it has applied the log."""
        return self._table.applied if self._table is not None else 0

    @property
    def joined(self) -> bool:
        """Return whether this node counts as one that has all of it."""
        return self._parts.node in self.info.joined

    @property
    def is_replaceable(self) -> bool:
        """Whether the table could be here again if it were taken away."""
        with contextlib.suppress(LogError):
            return bool(self._sources()) or self._reaches_back
        return False

    def status(self) -> HostedStatus:
        """Return how it is."""
        end = 0
        with contextlib.suppress(LogError):
            end = self._parts.feed.end(self.info.log)
        log, table = "", self._table
        with contextlib.suppress(LogError):
            log = self._parts.feed.routes.log(self.info.log).name
        return HostedStatus(
            table=self.info.table.hex(),
            name=self.info.name,
            log=log,
            state=self.state.value,
            applied=self.applied,
            flushed=table.flushed if table is not None else 0,
            behind=max(0, end - self.applied),
            file_bytes=self._figure("file_bytes"),
            memory_bytes=self._figure("memory_bytes"),
            copied_bytes=self._copying.copied_bytes if self._copying else 0,
            joined=self.joined,
            why=self.why,
        )

    def _figure(self, name: str) -> int:
        return int(self._figures.get(name, 0))

    # --- life

    def start(self) -> None:
        """Begin to keep it."""
        self._task = asyncio.get_running_loop().create_task(self._counted())

    def change(self, info: TableInfo) -> None:
        """Take what the catalog says of it now."""
        if info != self.info:
            self.info = info
            self._news.set()

    def stop(self) -> None:
        """Begin to stop; `close` waits for the end."""
        if self.state is not HostState.CLOSED and self._task is not None:
            # A second time it would interrupt what closes the table.
            self._task.cancel()
        self.state = HostState.CLOSED

    async def close(self) -> None:
        """Stop, and let go of the table."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._enter(HostState.CLOSED)

    def breaks(self, error: LogError) -> None:
        """Take note that something could not be read from the table."""
        if not self.is_replaceable:
            # What it can read is better than nothing.
            self.why = error.message
        elif self._broken is not None and not self._broken.done():
            self._broken.set_exception(_BrokenError(error))

    def _enter(self, state: HostState, why: str = "") -> None:
        self.state, self.why = state, why
        self._parts.advanced(self.info.table)

    async def _counted(self) -> None:
        with self._parts.memory.counted(self):
            await self._run()

    async def _run(self) -> None:
        settings = self._parts.settings
        pauses = Backoff(settings.retry_s, settings.retry_max_s)
        pauses.pause(0.0)
        while True:
            try:
                await self._open()
                pauses.reset()
                pauses.pause(0.0)
                await self._live()
            except _BrokenError as broken:
                await self._mend(broken.cause)
            except LogError as error:
                self._enter(self.state, error.message)
                _log.debug("table %r: %s", self.info.name, error)
            except Exception as error:
                # Other tables, and the logs of this node, go on.
                self._enter(HostState.DAMAGED, f"a bug of this node: {error!r}")
                _log.exception("table %r stopped because of a bug", self.info.name)
            finally:
                await self._let_go()
            await asyncio.sleep(pauses.pause(self._parts.share()))

    async def _let_go(self) -> None:
        table, self._table = self._table, None
        self._figures = {}
        if table is not None:
            self._parts.advanced(self.info.table)
            await self._parts.slow.run(table.close)

    # --- opening

    @property
    def _reaches_back(self) -> bool:
        """Whether the log has everything that the table was made of."""
        return self._parts.feed.routes.log(self.info.log).trim <= self.info.begin

    def _sources(self) -> list[int]:
        return [node for node in self.info.joined if node != self._parts.node]

    async def _open(self) -> None:
        """Have the table open, copied if need be."""
        parts = self._parts
        self._enter(HostState.OPENING, self.why)
        # Not older than what was answered before the node stopped.
        routes = await parts.feed.linearize()
        log = routes.log(self.info.log)
        self._goal = log.high_watermark
        # Others may have lost theirs at the same time: what is here is then the best.
        self._damaged = self._damaged and self.is_replaceable
        has = partial(parts.engine.files.has, self.info.table)
        here = await parts.slow.run(has)
        if self._damaged or (not here and not await self._is_new()):
            await self._copy()
            self._damaged = False
        elif not here:
            await self._hold_log()
        opened = partial(parts.engine.open, self.info, max(1, log.trim))
        try:
            self._table = await parts.slow.run(opened)
        except CorruptionError as error:
            raise _BrokenError(error) from error
        self._refused_since = None
        await self._check_behind()
        if self._table.applied + 1 < log.trim:
            msg = f"position {self._table.applied + 1} of its log was trimmed"
            raise _BrokenError(TrimmedError(msg, first=log.trim))
        self._enter(HostState.CATCHING_UP)

    async def _check_behind(self) -> None:
        """Give up a table that has more than the cluster has committed."""
        reached = self._open_table.reached
        if reached > self._goal:
            # A copy may be newer than what was committed before it was asked for.
            routes = await self._parts.feed.linearize()
            self._goal = routes.log(self.info.log).high_watermark
        if reached > self._goal:
            msg = (
                f"it has position {reached} of its log, and the cluster has committed "
                f"{self._goal}: the log lost its end"
            )
            raise _BrokenError(CorruptionError(msg))

    async def _is_new(self) -> bool:
        """Tell whether the table begins here with the log, and not with a copy."""
        if not self._reaches_back:
            if self.joined:
                await self._settle(joined=False)
            return False
        return self.joined or not self._sources()

    async def _copy(self) -> None:
        """Get the table from another host, or begin it anew of the log.

        Raises:
            LogError: neither can be done now; what is here stays.
        """
        parts, last = self._parts, None
        self._enter(HostState.COPYING, self.why)
        for source in self._sources():
            try:
                await self._copy_from(source)
            except LogError as error:
                last = error
            else:
                return
        if not self._reaches_back:
            raise last or NotReadyError("no other node has all of it")
        waits = last is not None and not self._is_refused_for_long()
        try:
            # Also while others are asked again: in the end the log may be all there is.
            await self._hold_log()
        except TrimmedError as error:
            # What is here stays: the next attempt finds that there is nothing better.
            name = self.info.name
            _log.warning("table %r cannot be made anew: %s", name, error.message)
            raise
        if last is not None and waits:
            raise last
        # It is made anew from the log.
        await parts.slow.run(partial(parts.engine.files.trash, self.info.table))

    async def _copy_from(self, source: int) -> None:
        parts = self._parts
        self._copying = TableCopy(
            self.info.table,
            parts.engine.files,
            parts.questions,
            parts.slow,
            parts.settings,
        )
        try:
            copied = await self._copying.copy(source)
        except LogError as error:
            # A copy that was cut off goes on; a damaged one would end like that again.
            if self._copying.copied_bytes and not isinstance(error, CorruptionError):
                self._refused_since = None
            raise
        parts.counters.table_copies += 1
        parts.counters.table_copied_bytes += copied.bytes
        self._tell(
            "table_copied",
            f"table {self.info.name!r} was copied from node {source}: "
            f"{copied.bytes} bytes in {copied.files} files",
        )

    def _is_refused_for_long(self) -> bool:
        """Tell whether all others have refused a copy for as long as one may be away.

        A host that starts, or is behind its log, refuses for a moment.
        """
        now = asyncio.get_running_loop().time()
        if self._refused_since is None:
            self._refused_since = now
        return now - self._refused_since >= self._parts.settings.repair_s

    async def _hold_log(self) -> None:
        """Have the log keep everything that the table is made of.

        Raises:
            TrimmedError: some of it is gone.
            LogError: nobody could confirm that it is kept.
        """
        begin = self.info.begin
        # A flush for somebody who asked may be about to move the pin forward.
        async with self._flushing:
            # A log that lost its end may end before the table begins.
            await self._set_pin(min(begin, self._goal + 1))
        # A trim may have come first.
        routes = await self._parts.feed.linearize()
        trim = routes.log(self.info.log).trim
        if trim > begin:
            msg = f"position {begin} of its log was trimmed"
            raise TrimmedError(msg, first=trim)

    async def _mend(self, cause: LogError) -> None:
        """Say that the table here is damaged, so that others answer and a copy comes.

        What is here stays until the copy is whole.
        """
        self._enter(HostState.DAMAGED, cause.message)
        self._parts.counters.table_damages += 1
        self._tell(
            "table_damaged",
            f"table {self.info.name!r} cannot be read on this node: {cause.message}",
            warning=True,
        )
        self._damaged = self.is_replaceable
        try:
            await self._settle(joined=False)
        except LogError as error:
            # Nobody else has all of it, or nobody decides now: who asks is refused.
            self.why = f"{cause.message}; {error.message}"

    # --- following

    async def _live(self) -> None:
        """Keep the open table, until it breaks."""
        self._broken = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._keep_up())
                group.create_task(self._build())
                group.create_task(self._watch_broken(self._broken))
        except BaseExceptionGroup as several:
            raise _first(several) from several
        finally:
            self._broken = None

    async def _watch_broken(self, broken: asyncio.Future[None]) -> None:
        await broken

    async def _work(self, call: Callable[[], object]) -> object:
        """Make a call that takes long and may find damage."""
        try:
            return await self._parts.slow.run(call)
        except CorruptionError as error:
            if self.is_replaceable:
                raise _BrokenError(error) from error
            self.why = error.message
        return None

    async def _follow(self) -> None:
        table, parts = self._open_table, self._parts
        begin = table.applied + 1
        # If it is trimmed meanwhile, the next open sees whether something is lost.
        async with MergeReader(parts.feed, self.info.log, begin) as reading:
            await self._caught_up()
            while True:
                spans = await reading.next()
                pieces = [
                    LogPiece(span.data, span.glsn, span.skip, span.count)
                    for span in spans
                ]
                await self._make_room()
                with parts.memory.applying(sum(len(each.data) for each in spans)):
                    try:
                        await parts.worker.run(partial(table.apply, pieces))
                    except CorruptionError as error:
                        raise _BrokenError(error) from error
                parts.advanced(self.info.table)
                await self._caught_up()

    async def _make_room(self) -> None:
        """Flush what fills the memory; wait for room on the disk if there is none."""
        settings, memory = self._parts.settings, self._parts.memory
        pauses = Backoff(settings.retry_s, settings.retry_max_s)
        while self._open_table.is_full or memory.is_full:
            try:
                if self._open_table.is_full:
                    await self._flush()
                elif not await memory.relieve():
                    await asyncio.sleep(pauses.pause(self._parts.share()))
            except UnavailableError as error:
                self._wait_for_room(error)
                await asyncio.sleep(pauses.pause(self._parts.share()))

    def _wait_for_room(self, error: UnavailableError) -> None:
        """Say once what is in the way: the log keeps what is not in files."""
        if self.why != error.message:
            self.why = error.message
            _log.warning(
                "table %r cannot write files, and goes on from memory: %s",
                self.info.name,
                error,
            )

    @property
    def _open_table(self) -> HostedTable:
        assert self._table is not None, "it is open while its tasks run"
        return self._table

    async def _caught_up(self) -> None:
        """Serve, once it has what was committed when it was opened."""
        if self.state is HostState.SERVING or self.applied < self._goal:
            return
        if not self.joined:
            await self._flush()
            await self._settle(joined=True)
        self._enter(HostState.SERVING)

    async def _settle(self, *, joined: bool) -> None:
        node = self._parts.node
        await self._parts.questions.command(SettleHost(self.info.table, node, joined))

    # --- keeping

    async def _keep_up(self) -> None:
        """Flush in time, and merge."""
        settings, table = self._parts.settings, self._open_table
        loop = asyncio.get_running_loop()
        flushed_at = loop.time()
        while True:
            await asyncio.sleep(settings.merge_pause_s)
            try:
                if table.is_full or loop.time() - flushed_at >= settings.flush_s:
                    flushed_at = loop.time()
                    await self._flush()
                await self._merge()
                self._figures = await self._parts.worker.run(table.stats)
                if self.state is HostState.SERVING and not self.joined:
                    # What was said before it was copied may have come late.
                    await self._settle(joined=True)
            except UnavailableError as error:
                self._wait_for_room(error)
            else:
                self.why = ""

    async def _merge(self) -> None:
        """Merge what has to be, a few times at most."""
        parts, table = self._parts, self._open_table
        for _ in range(_MERGES):
            async with parts.merging:
                if not await self._work(table.merge):
                    return

    async def flush(self) -> None:
        """Write what is in memory and let the log go on, because somebody asked.

        Raises:
            NotReadyError: it is not answered from, or is closed meanwhile.
            CorruptionError: its files cannot be written to.
            LogError: the log is still held, for this reason.
        """
        table = self.table
        async with self._flushing:
            await self._parts.slow.run(table.flush)
            if self._table is not table:
                raise self.not_ready()
            await self._move_pin(table)

    @property
    def memory_bytes(self) -> int:
        """Return what it has in memory and not in files."""
        return self._table.memory_bytes if self._table is not None else 0

    async def relieve(self) -> None:
        """Write what is in memory, because all tables together have too much.

        Raises:
            UnavailableError: there is no room for the files.
        """
        table = self._table
        if table is None:
            return
        async with self._flushing:
            try:
                await self._parts.slow.run(table.flush)
            except CorruptionError as error:
                self.breaks(error)
            except ClosedError:
                return  # Closed meanwhile, and its memory is free.

    async def _flush(self) -> None:
        """Write what is in memory, and let the log go on."""
        table = self._open_table
        async with self._flushing:
            await self._work(table.flush)
            try:
                await self._move_pin(table)
            except LogError as error:
                # It is moved by the next flush, and holds the log until then.
                _log.debug("the pin of table %r: %s", self.info.name, error)

    async def _move_pin(self, table: HostedTable) -> None:
        """Let the log go on up to what is in files."""
        position = table.flushed + 1
        # From the beginning it stands where the table begins.
        if position == self._pinned_at or position <= self.info.begin:
            return
        await self._set_pin(position)

    async def _set_pin(self, position: int) -> None:
        pin = pin_name(self.info.table, self._parts.node)
        move = CursorChange.MOVE
        command = SetCursor(self.info.log, pin, position, change=move)
        # It may be moved although no answer comes.
        self._pinned_at = 0
        await self._parts.questions.command(command)
        self._pinned_at = position

    # --- indexes

    async def _build(self) -> None:
        """Have the indexes that the catalog says."""
        known: dict[bytes, IndexInfo] = {}
        table, parts = self._open_table, self._parts
        while True:
            self._news.clear()
            wanted = {
                each.tree: each
                for each in self.info.indexes
                if each.status is not IndexStatus.ABORTED
            }
            for tree in known.keys() - wanted.keys():
                await self._work(partial(table.detach, tree))
                del known[tree]
            for tree, index in wanted.items():
                if tree not in known:
                    known[tree] = index
                    try:
                        await self._work(partial(table.attach, index))
                    except InvalidArgumentError as error:
                        await self._settle_index(index, error.message)
            for index in wanted.values():
                await self._build_one(index)
            parts.advanced(self.info.table)
            await self._news.wait()

    async def _build_one(self, index: IndexInfo) -> None:
        def goes_on() -> bool:
            indexes = self.info.indexes
            stays = any(
                each.tree == index.tree and each.status is not IndexStatus.ABORTED
                for each in indexes
            )
            return stays and self.state is not HostState.CLOSED

        reason = ""
        try:
            build = partial(self._open_table.build, index.tree, goes_on)
            async with self._parts.building:
                if not await self._parts.slow.run(build):
                    return
        except NotFoundError:
            return  # It could not begin, and is aborted.
        except CorruptionError as error:
            raise _BrokenError(error) from error
        except InvalidArgumentError as error:
            reason = error.message
        await self._settle_index(index, reason)

    async def _settle_index(self, index: IndexInfo, reason: str) -> None:
        """Say that an index is built or, with a reason, that it cannot be."""
        if index.status is IndexStatus.BUILDING:
            settled = SettleIndex(self.info.table, index.tree, not reason, reason)
            await self._say(ChangeTables((settled,)))

    async def _say(self, command: ChangeTables) -> None:
        """Execute a command, again and again until it is."""
        settings = self._parts.settings
        pauses = Backoff(settings.retry_s, settings.retry_max_s)
        while True:
            try:
                await self._parts.questions.command(command)
            except NotFoundError:
                return  # Dropped meanwhile.
            except LogError as error:
                _log.debug("table %r: %s", self.info.name, error)
                await asyncio.sleep(pauses.pause(self._parts.share()))
            else:
                return

    def _tell(self, name: str, text: str, *, warning: bool = False) -> None:
        fields = {"table": self.info.name}
        event = Event(name, text, fields, warning=warning)  # type: ignore[arg-type]
        tell(_log, self._parts.node, event)


def _first(several: BaseExceptionGroup) -> BaseException:
    """Return what ended the tasks: damage before anything else."""
    found = [
        _first(each) if isinstance(each, BaseExceptionGroup) else each
        for each in several.exceptions
    ]
    return next((each for each in found if isinstance(each, _BrokenError)), found[0])
