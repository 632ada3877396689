"""Reading rows of a table of a cluster, or by an index of it, as programs call it.

What a read asks for becomes pages of rows; these become records or Arrow batches. Where
reads go, to the newest state or to a position that is held, their owners say.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from braidlog import _native
from braidlog.client.tables.catalog import STRICT, index_missing
from braidlog.client.tables.hosts import PositionLease, TableHosts
from braidlog.client.tables.reads import Found, Page, Wanted, get_rows, scan_pages
from braidlog.errors import InvalidArgumentError
from braidlog.store.arguments import (
    checked_columns,
    checked_flag,
    checked_key,
    checked_limit,
)
from braidlog.wire.tables import IndexInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Record

__all__ = [
    "AsyncIndexReads",
    "AsyncTableReads",
    "arrow_batches",
    "each_of",
    "keys_wanted",
]


def _successor(prefix: bytes) -> bytes | None:
    """Return the lowest key above all that begin with a prefix; None: there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def keys_wanted(
    begin: Buffer | None,
    end: Buffer | None,
    prefix: Buffer | None,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Wanted:
    """Return what a scan of keys is after."""
    low = b"" if begin is None else checked_key(begin)
    high = None if end is None else checked_key(end)
    if prefix is not None:
        plain = checked_key(prefix)
        low, above = max(low, plain), _successor(plain)
        if above is not None:
            high = above if high is None else min(high, above)
    count = checked_limit(limit)
    return Wanted(low, high, checked_flag(reverse, "reverse"), count)


async def _records(pages: AsyncGenerator[Page, None]) -> AsyncIterator[Record]:
    async with contextlib.aclosing(pages):
        async for page in pages:
            for record in page.records():
                yield record


async def _chunks(
    pages: AsyncGenerator[Page, None],
) -> AsyncGenerator[list[Record], None]:
    async with contextlib.aclosing(pages):
        async for page in pages:
            yield page.records()


async def arrow_batches(
    pages: AsyncGenerator[Page, None], columns: list[str] | None
) -> AsyncGenerator[list[pa.RecordBatch], None]:
    """Make Arrow batches of pages."""
    import pyarrow as pa

    async with contextlib.aclosing(pages):
        async for page in pages:
            found = _native.rows_arrow(page.batch, page.positions, columns)
            yield [pa.record_batch(found)]


async def each_of(chunks: AsyncGenerator[list[Any], None]) -> AsyncIterator[Any]:
    """Iterate over the items of chunks."""
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            for item in chunk:
                yield item


async def _gathered(
    chunks: AsyncGenerator[list[pa.RecordBatch], None], columns: list[str] | None
) -> pa.Table:
    import pyarrow as pa

    from braidlog.client.arrow import log_schema

    schema, found = log_schema(columns), []
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            found += chunk
    return pa.Table.from_batches(found, schema)


class _Reads(abc.ABC):
    """Where reads of a table go: to its newest state, or to a position that is held."""

    _hosts: TableHosts

    @abc.abstractmethod
    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        """Return what an answer has to be after, and the position that is held."""


class AsyncTableReads(_Reads):
    """Reading a table of a cluster: its newest state, or that of a snapshot."""

    async def _pages(
        self, wanted: Wanted, after: int | None, *, stale_ok: bool
    ) -> AsyncGenerator[Page, None]:
        position, held = await self._at(after, stale_ok=stale_ok)
        pages = scan_pages(self._hosts, wanted, position, held)
        async with contextlib.aclosing(pages):
            async for page in pages:
                yield page

    async def get(
        self, key: Buffer, *, after: int | None = None, stale_ok: bool = False
    ) -> Record | None:
        """Return the record that has the value of a key; None if the key has none.

        Every record counts that was acknowledged when the call began. With ``after``
        those up to there count at least, and with ``stale_ok`` those that a host has.

        Raises:
            BeyondEndError: the record at ``after`` is not written yet.
            UnavailableError: no host of the table answers in time that has all of them.
        """
        found = await self._found([checked_key(key)], after, stale_ok=stale_ok)
        return found.records(1)[0]

    async def get_many(
        self,
        keys: Iterable[Buffer],
        *,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> Any:
        """Look up many keys, all at one position; see `Table.get_many`."""
        if not hasattr(keys, "__arrow_c_array__"):
            plain = [checked_key(key) for key in keys]
            found = await self._found(plain, after, stale_ok=stale_ok)
            return found.records(len(plain))
        import pyarrow as pa

        wanted = pa.array(keys)
        if wanted.null_count or not _is_text(wanted.type):
            msg = "keys must be a column of binary or text without nulls"
            raise InvalidArgumentError(msg)
        plain = [checked_key(_bytes_of(key)) for key in wanted.to_pylist()]
        found = await self._found(plain, after, stale_ok=stale_ok)
        return _arrow_rows(plain, found)

    async def _found(
        self, keys: list[bytes], after: int | None, *, stale_ok: bool
    ) -> Found:
        position, held = await self._at(after, stale_ok=stale_ok)
        return await get_rows(self._hosts, keys, position, held)

    def scan(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate over the records of keys ``begin`` to ``end`` (half-open) in order.

        All is of the moment when the iteration begins; see `Table.scan`.
        """
        wanted = keys_wanted(begin, end, prefix, reverse=reverse, limit=limit)
        return _records(self._pages(wanted, after, stale_ok=stale_ok))

    def _scan_chunks(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        wanted = keys_wanted(begin, end, prefix, reverse=reverse, limit=limit)
        return _chunks(self._pages(wanted, after, stale_ok=stale_ok))

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over all keys."""
        return self.scan()

    def batches(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Scan as `pyarrow.RecordBatch`; see `Table.batches`."""
        return each_of(
            self._batch_chunks(
                begin,
                end,
                prefix=prefix,
                columns=columns,
                after=after,
                stale_ok=stale_ok,
            )
        )

    def _batch_chunks(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        wanted = keys_wanted(begin, end, prefix)
        pages = self._pages(wanted, after, stale_ok=stale_ok)
        return arrow_batches(pages, checked_columns(columns))

    async def to_arrow(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> pa.Table:
        """Return the keys ``begin`` to ``end`` as one Arrow table, in memory."""
        columns = checked_columns(columns)
        chunks = self._batch_chunks(
            begin, end, prefix=prefix, columns=columns, after=after, stale_ok=stale_ok
        )
        return await _gathered(chunks, columns)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    text = (kinds.is_string, kinds.is_large_string)
    return any(
        is_one(kind) for is_one in (*text, kinds.is_binary, kinds.is_large_binary)
    )


def _bytes_of(key: Any) -> Any:
    return key.encode() if isinstance(key, str) else key


def _arrow_rows(keys: list[bytes], found: Found) -> pa.RecordBatch:
    """Return a row for each key, with nulls where it has no value."""
    import pyarrow as pa

    from braidlog.client.arrow import log_schema

    parts, done = [], 0
    for page, numbers in found.pages:
        # Up to the last key of the page; those behind it belong to the next one.
        end = numbers[-1] + 1
        own = [number - done for number in numbers]
        rows = _native.rows_arrow(page.batch, page.positions, None, keys[done:end], own)
        parts.append(pa.record_batch(rows))
        done = end
    if done < len(keys):
        parts.append(
            pa.record_batch(_native.rows_arrow(b"", (), None, keys[done:], []))
        )
    if not parts:
        return pa.RecordBatch.from_pylist([], log_schema())
    whole = pa.Table.from_batches(parts).combine_chunks()
    batches: list[pa.RecordBatch] = whole.to_batches()
    return batches[0]


class AsyncIndexReads(_Reads):
    """Reading by an indexed field."""

    _name: str
    _bound: IndexInfo | None = None
    """What had the name when a snapshot was asked for it."""

    def _wanted(
        self, *, reverse: bool = False, limit: int | None = None, **bounds: Any
    ) -> Wanted:
        info = self._hosts.known
        named = (i for i in info.indexes if i.name == self._name)
        found = self._bound or next(named, None)
        if found is None:
            raise index_missing(info, self._name)
        field = found.field.decode().removeprefix(STRICT)
        low, high = _native.index_bounds(field, **bounds)
        count = checked_limit(limit)
        reverse = checked_flag(reverse, "reverse")
        tree = b"" if self._bound is None else self._bound.tree
        return Wanted(low or b"", high, reverse, count, self._name, tree)

    async def _pages(
        self, wanted: Wanted, after: int | None, *, stale_ok: bool
    ) -> AsyncGenerator[Page, None]:
        position, held = await self._at(after, stale_ok=stale_ok)
        # An error of the catalog is the answer, and not one to try again for.
        wanted.tree_in(self._hosts.info())
        pages = scan_pages(self._hosts, wanted, position, held)
        async with contextlib.aclosing(pages):
            async for page in pages:
                yield page

    def get(
        self,
        value: Any,
        *,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate over the records whose field has this value, in the order of keys.

        Raises:
            NotReadyError: the index is still being built.
            InvalidArgumentError: the value is of another type than the field, or the
                index could not be built.
        """
        wanted = self._wanted(value=value, limit=limit)
        return _records(self._pages(wanted, after, stale_ok=stale_ok))

    def _get_chunks(
        self,
        value: Any,
        *,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        wanted = self._wanted(value=value, limit=limit)
        return _chunks(self._pages(wanted, after, stale_ok=stale_ok))

    def scan(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate in the order of the field, from ``begin`` to ``end`` (half-open).

        See `TableIndex.scan`.
        """
        wanted = self._wanted(begin=begin, end=end, reverse=reverse, limit=limit)
        return _records(self._pages(wanted, after, stale_ok=stale_ok))

    def _scan_chunks(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        wanted = self._wanted(begin=begin, end=end, reverse=reverse, limit=limit)
        return _chunks(self._pages(wanted, after, stale_ok=stale_ok))

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over all records that have the field."""
        return self.scan()

    def batches(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Scan as `pyarrow.RecordBatch`; see `Table.batches`."""
        return each_of(
            self._batch_chunks(
                begin, end, columns=columns, after=after, stale_ok=stale_ok
            )
        )

    def _batch_chunks(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        wanted = self._wanted(begin=begin, end=end)
        pages = self._pages(wanted, after, stale_ok=stale_ok)
        return arrow_batches(pages, checked_columns(columns))

    async def to_arrow(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> pa.Table:
        """Return a part of the index as one Arrow table, in memory."""
        columns = checked_columns(columns)
        chunks = self._batch_chunks(
            begin, end, columns=columns, after=after, stale_ok=stale_ok
        )
        return await _gathered(chunks, columns)
