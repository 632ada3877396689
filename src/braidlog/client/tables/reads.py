"""Reads of a table as of one position, put together from the answers of hosts.

*Theory of operation.* An answer has a bound. If it is not all of a read, the rest is
read at the position of the first answer, which a host keeps for that long. Where the
position is gone already, nothing was passed on yet, and the read begins again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from braidlog import _native
from braidlog.client.tables.catalog import index_of
from braidlog.client.tables.hosts import Answered, PositionLease, TableHosts
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    RemoteProtocolError,
    TrimmedError,
)
from braidlog.store.tables.entry import PARTS_MAX, TablePart
from braidlog.wire.messages import Feature, Message
from braidlog.wire.rows import DivideTable, GetRows, Rows, ScanRows, TableParts
from braidlog.wire.tables import TableInfo

if TYPE_CHECKING:
    from braidlog._native import Record

__all__ = ["Found", "Page", "Wanted", "divide", "get_rows", "scan_pages"]

KEYS_MAX: Final = 8192
"""Keys of one question."""
_ROWS_MAX: Final = 8192
_BYTES_MAX: Final = 1 << 20
_ATTEMPTS: Final = 3
_NUMBER_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Page:
    """Rows that came together."""

    positions: tuple[int, ...]
    batch: memoryview

    def records(self) -> list[Record]:
        """Return the rows as records.

        Raises:
            RemoteProtocolError: they are none.
        """
        try:
            return _native.rows_records(self.batch, self.positions)
        except (CorruptionError, InvalidArgumentError) as error:
            msg = f"rows of a table came that are none: {error.message}"
            raise RemoteProtocolError(msg) from error


@dataclass(slots=True)
class Found:
    """What keys were looked up with, as of one position."""

    position: int = 0
    pages: list[tuple[Page, list[int]]] = field(default_factory=list)
    """With the numbers of the keys that each row is of."""

    def records(self, count: int) -> list[Record | None]:
        """Return a record, or None, for each of so many keys."""
        found: list[Record | None] = [None] * count
        for page, numbers in self.pages:
            for number, record in zip(numbers, page.records(), strict=True):
                found[number] = record
        return found


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows a scan is after; of an index, bounds are as it orders them."""

    begin: bytes = b""
    end: bytes | None = None
    reverse: bool = False
    limit: int | None = None
    index: str = ""
    tree: bytes = b""
    """Which index has to have the name; empty: any."""

    def tree_in(self, info: TableInfo) -> bytes:
        """Return the tree to scan, of a table as it is now.

        Raises:
            NotFoundError: the index was dropped.
            NotReadyError: it is still being built.
        """
        if not self.index:
            return b""
        if not self.tree:
            return index_of(info, self.index).tree
        if all(index.tree != self.tree for index in info.indexes):
            raise NotFoundError(
                f"index {self.index!r} of table {info.name!r} was dropped"
            )
        return self.tree


async def get_rows(
    hosts: TableHosts, keys: Sequence[bytes], after: int, held: PositionLease | None
) -> Found:
    """Look keys up, all as of one position.

    Raises:
        LogError: as `TableHosts.ask`.
    """
    if held is not None:
        return await _get_at(hosts, keys, held)
    if not keys:
        return Found()
    if len(keys) <= KEYS_MAX:
        answer = await hosts.ask(_get(keys, 0, after))
        rows = answer.of(Rows)
        if rows.looked >= len(keys):
            found = Found(rows.position)
            _add(found, answer, 0, len(keys))
            return found
    for attempt in range(_ATTEMPTS):
        held = await hosts.hold(0, after)
        async with held:
            try:
                return await _get_at(hosts, keys, held)
            except TrimmedError:
                if attempt == _ATTEMPTS - 1:
                    raise
    raise AssertionError("the last attempt returns or raises")


def _get(keys: Sequence[bytes], at: int, after: int):  # type: ignore[no-untyped-def]
    def question(info: TableInfo, wait_ms: int) -> Message:
        return GetRows(info.table, tuple(keys), at, after, wait_ms)

    return question


async def _get_at(
    hosts: TableHosts, keys: Sequence[bytes], held: PositionLease
) -> Found:
    found, done, at = Found(held.position), 0, held.position
    if not at:
        return found  # There was no record yet.
    while done < len(keys):
        part = keys[done : done + KEYS_MAX]
        answer = await hosts.ask(_get(part, at, at), prefer=held.node, only=held.table)
        _require_position(answer.of(Rows), at)
        done += _add(found, answer, done, len(part))
    return found


def _add(found: Found, answer: Answered, begin: int, asked: int) -> int:
    """Take an answer in; return how many keys it is about."""
    rows = answer.of(Rows)
    looked, numbers = rows.looked, list(rows.found)
    rising = sorted(set(numbers)) == numbers
    if not (0 < looked <= asked and rising and len(numbers) == len(rows.positions)):
        raise RemoteProtocolError("rows do not fit the keys that were asked for")
    if numbers and numbers[-1] >= looked:
        raise RemoteProtocolError("a row came of a key that was not looked up")
    if numbers:
        page = Page(rows.positions, answer.payload)
        found.pages.append((page, [begin + number for number in numbers]))
    return looked


async def scan_pages(
    hosts: TableHosts, wanted: Wanted, after: int, held: PositionLease | None
) -> AsyncGenerator[Page, None]:
    """Read rows in order, page by page, all as of one position.

    Raises:
        LogError: as `TableHosts.ask`.
    """
    if wanted.limit == 0:
        return
    if held is not None:
        async with contextlib.aclosing(_pages_at(hosts, wanted, held)) as pages:
            async for page in pages:
                yield page
        return
    trees: list[bytes] = []
    answer = await hosts.ask(_scan(wanted, wanted.limit, 0, after, trees))
    rows = answer.of(Rows)
    first, rest = _cut(wanted, rows, answer)
    if rest is None:
        if first.positions:
            yield first
        return
    try:
        held = await hosts.hold(rows.position, rows.position, answer.node)
    except TrimmedError:
        # It went on meanwhile, and nothing was passed on yet.
        held = await hosts.hold(0, after)
        first, rest = Page((), memoryview(b"")), wanted
    else:
        # Another index may get the name meanwhile, and go on with keys of this one.
        rest = replace(rest, tree=trees[-1])
    async with held:
        if first.positions:
            yield first
        async with contextlib.aclosing(_pages_at(hosts, rest, held)) as pages:
            async for page in pages:
                yield page


async def _pages_at(
    hosts: TableHosts, wanted: Wanted, held: PositionLease
) -> AsyncGenerator[Page, None]:
    at = held.position
    # At 0 there was no record yet.
    left = wanted if at else None
    while left is not None and left.limit != 0:
        answer = await hosts.ask(
            _scan(left, left.limit, at, at), prefer=held.node, only=held.table
        )
        rows = answer.of(Rows)
        _require_position(rows, at)
        page, left = _cut(left, rows, answer)
        if page.positions:
            yield page


def _require_position(rows: Rows, at: int) -> None:
    if rows.position != at:
        msg = f"rows came of position {rows.position}, not of {at}"
        raise RemoteProtocolError(msg)


def _cut(wanted: Wanted, rows: Rows, answer: Answered) -> tuple[Page, Wanted | None]:
    """Return the page of an answer, and what is still wanted behind it."""
    count = len(rows.positions)
    if wanted.limit is not None and count > wanted.limit:
        raise RemoteProtocolError("more rows came than were asked for")
    if count and max(rows.positions) > rows.position:
        raise RemoteProtocolError("a row came that is newer than its answer")
    page = Page(rows.positions, answer.payload)
    if rows.next is None:
        return page, None
    if not count:
        raise RemoteProtocolError("a scan goes on, and no row came")
    limit = None if wanted.limit is None else wanted.limit - count
    if limit == 0:
        return page, None
    begin, end = wanted.begin, wanted.end
    within = begin <= rows.next and (end is None or rows.next <= end)
    if not within or rows.next == (end if wanted.reverse else begin):
        raise RemoteProtocolError("a scan would go on where it was, or beyond its end")
    if wanted.reverse:
        end = rows.next
    else:
        begin = rows.next
    return page, replace(wanted, begin=begin, end=end, limit=limit)


async def divide(
    hosts: TableHosts, wanted: Wanted, bytes_each: int, held: PositionLease
) -> tuple[list[TablePart], int]:
    """Divide what a scan reads; return its parts, and bytes of files of all.

    Raises:
        LogError: as `TableHosts.ask`.
    """
    bytes_each, at = min(max(1, bytes_each), _NUMBER_MAX), held.position
    hosts.require(Feature.TABLE_PARTS)
    if not at:
        return [], 0  # There was no record yet.

    def question(info: TableInfo, wait_ms: int) -> Message:
        return DivideTable(
            info.table,
            wanted.tree_in(info),
            wanted.begin,
            wanted.end,
            bytes_each,
            PARTS_MAX,
            at,
            at,
            wait_ms,
        )

    answer = await hosts.ask(question, prefer=held.node, only=held.table)
    found = answer.of(TableParts)
    return _checked_parts(wanted, found, at), found.whole


def _checked_parts(wanted: Wanted, found: TableParts, at: int) -> list[TablePart]:
    """Return parts that are all of what is wanted, at one position."""
    begins, end = found.begins, wanted.end
    if found.position != at:
        msg = f"parts came of position {found.position}, not of {at}"
        raise RemoteProtocolError(msg)
    if len(begins) != len(found.sizes) or len(begins) > PARTS_MAX:
        raise RemoteProtocolError("parts of a table came that are none")
    if end is not None and end <= wanted.begin:
        if begins:
            raise RemoteProtocolError("parts came of no keys")
        return []
    if not begins or begins[0] != wanted.begin:
        raise RemoteProtocolError("the first part of a table is missing")
    if any(low >= high for low, high in itertools.pairwise(begins)):
        raise RemoteProtocolError("parts of a table came in disorder")
    if end is not None and begins[-1] >= end:
        raise RemoteProtocolError("a part came behind the end")
    parts = zip(begins, [*begins[1:], end], found.sizes, strict=True)
    return [TablePart(*part) for part in parts]


def _scan(  # type: ignore[no-untyped-def]
    wanted: Wanted,
    limit: int | None,
    at: int,
    after: int,
    trees: list[bytes] | None = None,
):
    """Make the question; ``trees`` is told which one was asked for."""
    count = _ROWS_MAX if limit is None else min(limit, _ROWS_MAX)

    def question(info: TableInfo, wait_ms: int) -> Message:
        tree = wanted.tree_in(info)
        if trees is not None:
            trees.append(tree)
        return ScanRows(
            info.table,
            tree,
            wanted.begin,
            wanted.end,
            wanted.reverse,
            count,
            _BYTES_MAX,
            at,
            after,
            wait_ms,
        )

    return question
