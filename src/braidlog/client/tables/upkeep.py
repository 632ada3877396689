"""What every host of a table has to do because somebody asked: flush it, verify it.

*Theory of operation.* A read is answered by any host. These calls are about the files
of each, so each is asked, and again until it has done it or the time is over. Hosts
that come meanwhile are asked, too, and those that leave are not waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from braidlog.client.retry import Verdict, verdict_of
from braidlog.client.tables.hosts import Question, TableHosts
from braidlog.errors import (
    CorruptionError,
    DeadlineError,
    LogError,
    QuotaExceededError,
    RemoteProtocolError,
    UnavailableError,
)
from braidlog.wire.messages import Feature, Message
from braidlog.wire.rows import FlushTable, TableCheck, TableStatus, VerifyTable
from braidlog.wire.tables import TableInfo

__all__ = ["flush", "verify"]

T = TypeVar("T", bound=Message)
R = TypeVar("R")

_CHECK_ID_BYTES: Final = 16
_REPAIR: Final = (
    "A host that finds damage copies the table from another one; `braidlog table "
    "rebuild` makes it anew of its log"
)
Progress = Callable[[int], object]


async def flush(hosts: TableHosts, progress: Progress | None) -> None:
    """Have each host write what the log has to files, and let the log go on.

    Raises:
        UnavailableError: some host did not, so the log is still held for it.
    """
    after = await hosts.position(None)

    async def one(node: int) -> None:
        def question(info: TableInfo, wait_ms: int) -> Message:
            return FlushTable(info.table, after, wait_ms)

        status = await _ask(hosts, node, _hosts, question, TableStatus)
        if status is not None and progress is not None:
            progress(status.applied)

    await _each(hosts, _hosts, one)


async def verify(hosts: TableHosts, progress: Progress | None) -> tuple[int, int]:
    """Have each host that has all of the table read it; see `AsyncClusterTable`.

    Raises:
        CorruptionError: what a host has is damaged.
        UnavailableError: some host cannot be asked.
    """
    after = await hosts.position(None)
    read: dict[int, int] = {}

    async def one(node: int) -> tuple[int, int]:
        check = hosts.cluster.settings.entropy(_CHECK_ID_BYTES)

        def question(info: TableInfo, wait_ms: int) -> Message:
            return VerifyTable(info.table, check, after, wait_ms)

        while True:
            found = await _ask(hosts, node, _joined, question, TableCheck)
            if found is None:
                return 0, 0
            read[node] = max(read.get(node, 0), found.read)
            if progress is not None:
                progress(sum(read.values()))
            if found.damage:
                msg = f"node {node}: {found.damage}"
                damaged = CorruptionError(msg, path=found.path, offset=found.offset)
                raise damaged.advising(_REPAIR)
            if found.done:
                return found.records, found.entries

    return max(await _each(hosts, _joined, one), default=(0, 0))


def _hosts(info: TableInfo) -> tuple[int, ...]:
    return info.hosts


def _joined(info: TableInfo) -> tuple[int, ...]:
    return info.joined


Chosen = Callable[[TableInfo], tuple[int, ...]]
"""Those of the hosts that are asked."""


async def _each(
    hosts: TableHosts, chosen: Chosen, one: Callable[[int], Awaitable[R]]
) -> list[R]:
    """Ask all of them, also those that come meanwhile; damage is told first."""
    asked: set[int] = set()
    results: list[R] = []
    while missing := set(chosen(hosts.info())) - asked:
        hosts.require(Feature.TABLE_TASKS, missing)
        asked |= missing
        done = await asyncio.gather(
            *(one(node) for node in sorted(missing)), return_exceptions=True
        )
        errors = [each for each in done if isinstance(each, BaseException)]
        if errors:
            raise min(errors, key=lambda error: not isinstance(error, CorruptionError))
        results += [each for each in done if not isinstance(each, BaseException)]
    return results


async def _ask(
    hosts: TableHosts, node: int, chosen: Chosen, question: Question, kind: type[T]
) -> T | None:
    """Ask one host until it answers; None if it is none any more.

    Raises:
        UnavailableError: it does not answer in time.
        LogError: what it would say again.
    """
    settings, loop = hosts.cluster.settings, asyncio.get_running_loop()
    deadline, backoff = loop.time() + settings.timeout_s, hosts.cluster.backoff()
    said: LogError | None = None
    while True:
        await asyncio.sleep(backoff.pause(settings.share()))
        info = hosts.info()
        if node not in chosen(info):
            return None
        left = max(0.0, deadline - loop.time())
        try:
            answer = await hosts.ask_host(node, partial(question, info), left)
        except LogError as error:
            hosts.cluster.check_open()
            if verdict_of(error) is Verdict.FINAL:
                raise
            if said is None or not isinstance(error, DeadlineError):
                # That the last attempt had no time left says nothing.
                said = error
            if loop.time() >= deadline:
                msg = f"host {node} of table {info.name!r} did not do it in time"
                msg = f"{msg}: {said.message}"
                if isinstance(said, QuotaExceededError):
                    raise said.repeated(msg) from error
                raise UnavailableError(msg) from error
            with contextlib.suppress(LogError):
                await hosts.cluster.refresh()
        else:
            if not isinstance(answer, kind):
                what = type(answer).__name__
                raise RemoteProtocolError(f"{what} came instead of {kind.__name__}")
            return answer
