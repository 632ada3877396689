"""The appends of one client to one log: to which stream, in what pieces, how many
bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from braidlog.client.batches import BatchCodec
from braidlog.client.cluster import Cluster
from braidlog.client.lane import Lane, Records
from braidlog.client.producer import Entry, StreamProducer
from braidlog.client.room import Room
from braidlog.client.routing import RoundRobin
from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
    SequenceGapError,
    TooLargeError,
)
from braidlog.storage.catalog import LogOptions
from braidlog.types import Headers, Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Appending", "Piece", "rows_of"]

# Bytes that a record is counted with beyond its key, value and headers.
_RECORD_COST: Final = 64
# No producer gets this far, so the primary must refuse it and say what comes next.
_SEQUENCE_NEVER: Final = (1 << 63) - 1
_TIMESTAMPS: Final = range(-(1 << 63), 1 << 63)


class Piece:
    """Records on their way into one batch."""

    __slots__ = ("headers", "indexes", "keys", "size", "timestamps", "values")

    def __init__(self) -> None:
        """Begin with none."""
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: list[Headers] = []
        self.indexes: list[int] = []
        self.size = 0

    def add(self, index: int, row: tuple[bytes, bytes | None, int, Headers]) -> None:
        """Add a record, which was given as number ``index``."""
        value, key, timestamp, headers = row
        self.values.append(value)
        self.keys.append(key)
        self.timestamps.append(timestamp)
        self.headers.append(headers)
        self.indexes.append(index)
        self.size += _size_of(value, key, headers)


class Appending:
    """Lanes to the streams of a log, and what they share."""

    def __init__(self, cluster: Cluster, log: bytes, codec: BatchCodec) -> None:
        """Begin with a producer that nobody else has."""
        settings = cluster.settings
        self.end = 1
        self._cluster = cluster
        self._settings = settings
        self._log = log
        self._codec = codec
        self._producer = Producer(int.from_bytes(settings.entropy(8), "little") or 1)
        self._room = Room(settings.outstanding_bytes_max)
        self._turn = RoundRobin()
        self._lanes: dict[int, Lane] = {}
        options = LogOptions.decode(cluster.routes.log(log).options)
        self._compression = options.compression
        cluster.listen(self._routes_changed)

    def _routes_changed(self) -> None:
        for lane in self._lanes.values():
            lane.routes_changed()

    def close(self, error: LogError | None = None) -> None:
        """Fail what is not settled."""
        self._cluster.unlisten(self._routes_changed)
        for lane in self._lanes.values():
            lane.close(error or ClosedError("the client is closed"))

    # -- records -----------------------------------------------------------------

    def row(
        self,
        value: Buffer,
        key: Buffer | None,
        timestamp: int | None,
        headers: Iterable[tuple[str, Buffer]] | None,
    ) -> tuple[bytes, bytes | None, int, Headers]:
        """Check one record and return it as it is encoded.

        Raises:
            TypeError: something is not what it must be.
            TooLargeError: the record is over its limit.
        """
        plain = _bytes(value)
        plain_key = None if key is None else _bytes(key)
        named: Headers = ()
        if headers is not None:
            named = tuple((_name(name), _bytes(data)) for name, data in headers)
        size = _size_of(plain, plain_key, named)
        limit = self._settings.record_bytes_max
        if size > limit:
            msg = f"a record of {size} bytes is over the limit of {limit}"
            raise TooLargeError(msg, size=size, limit=limit)
        if timestamp is None:
            timestamp = self._settings.clock()
        elif isinstance(timestamp, bool) or not isinstance(timestamp, int):
            msg = f"timestamp must be an int of microseconds, not {timestamp!r}"
            raise TypeError(msg)
        elif timestamp not in _TIMESTAMPS:
            msg = f"timestamp {timestamp} does not fit 64 bits"
            raise InvalidArgumentError(msg)
        return plain, plain_key, timestamp, named

    def pieces(
        self, rows: Sequence[tuple[bytes, bytes | None, int, Headers]], *, whole: bool
    ) -> list[tuple[int, Piece]]:
        """Return the batches for records, each with its stream, in order.

        Records with a key go to its stream, those without to one stream together;
        ``whole``: all go to one, because the sequences of a producer need it.
        """
        open_pieces: dict[int, Piece] = {}
        done: list[tuple[int, Piece]] = []
        keyless = None if whole else self._any_stream()
        limit = self._settings
        for index, row in enumerate(rows):
            key = row[1]
            stream = 0
            if keyless is not None:
                stream = keyless if key is None else self.stream_of(key)
            piece = open_pieces.get(stream)
            size = _size_of(row[0], key, row[3])
            if piece is not None and (
                piece.size + size > limit.batch_bytes_max
                or len(piece.values) >= limit.batch_records_max
            ):
                done.append((stream, piece))
                piece = None
            if piece is None:
                piece = open_pieces[stream] = Piece()
            piece.add(index, row)
        return done + list(open_pieces.items())

    # -- streams -----------------------------------------------------------------

    def stream_of(self, key: bytes) -> int:
        """Return the stream of a key."""
        return self._cluster.routes.stream_of(self._log, key)

    def stream_of_producer(self, producer: Producer) -> int:
        """Return the stream of a producer that the caller brings."""
        return self.stream_of(producer.id.to_bytes(8, "little"))

    def _any_stream(self) -> int:
        routes = self._cluster.routes
        running = routes.running(self._log)
        if not running:
            # It waits there until one of them runs.
            running = tuple(sorted(self._cluster.streams_of(self._log)))
        if not running:
            msg = "the log has no stream"
            raise NotReadyError(msg)
        return self._turn.current(running)

    def _lane(self, stream: int) -> Lane:
        lane = self._lanes.get(stream)
        if lane is None:
            core: StreamProducer[asyncio.Future[int]] = StreamProducer(
                self._producer, self._settings.producer_limits
            )
            lane = self._lanes[stream] = Lane(
                self._cluster,
                stream,
                core,
                self._codec,
                self._compression,
                self._room,
                self._turn.advance,
                self.reached,
            )
        return lane

    def reached(self, end: int) -> None:
        """Take note that the log goes at least up to ``end``."""
        self.end = max(self.end, end)

    # -- append ------------------------------------------------------------------

    def submit(
        self,
        row: tuple[bytes, bytes | None, int, Headers],
        producer: Producer | None,
        sequence: int | None,
    ) -> asyncio.Future[int]:
        """Append one record if there is room.

        Raises:
            NotReadyError: there is none; wait for what was submitted before.
        """
        piece = Piece()
        piece.add(0, row)
        if not self._room.take_now(piece.size):
            limit = self._settings.outstanding_bytes_max
            msg = f"{limit} bytes wait for their acknowledgement"
            raise NotReadyError(msg)
        try:
            stream = self._stream_for(row[1], producer)
            entry = self._entry(piece, producer, sequence, self._deadline(None))
            self._lane(stream).add(entry)
        except BaseException:
            self._room.give(piece.size)
            raise
        return entry.waiter

    async def append(
        self,
        row: tuple[bytes, bytes | None, int, Headers],
        producer: Producer | None,
        sequence: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> int:
        """Append one record and return its position."""
        deadline = self._deadline(timeout)
        piece = Piece()
        piece.add(0, row)
        # A stream is chosen when there is room, so that it is one that runs then.
        await self._take_room(piece.size, deadline)
        try:
            stream = self._stream_for(row[1], producer)
            entry = self._entry(piece, producer, sequence, deadline)
            lane = self._lane(stream)
            lane.add(entry)
        except BaseException:
            self._room.give(piece.size)
            raise
        return await self._wait(lane, entry)

    async def append_many(
        self,
        rows: Sequence[tuple[bytes, bytes | None, int, Headers]],
        producer: Producer | None,
        sequence: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Sequence[int]:
        """Append records; see `ClusterLog.append_many`."""
        self._cluster.check_open()
        deadline = self._deadline(timeout)
        _check_producer(producer, sequence)
        if not rows:
            end = max(
                self.end,
                (await self._cluster.linearize()).log(self._log).high_watermark + 1,
            )
            return range(end, end)
        waiting: list[tuple[Piece, Lane, Records]] = []
        try:
            for stream, piece in self.pieces(rows, whole=producer is not None):
                if producer is not None:
                    stream = self.stream_of_producer(producer)
                await self._take_room(piece.size, deadline)
                entry = self._entry(piece, producer, sequence, deadline)
                lane = self._lane(stream)
                lane.add(entry)
                waiting.append((piece, lane, entry))
                sequence = None if sequence is None else sequence + len(piece.values)
            return await self._positions(len(rows), waiting)
        finally:
            for _, lane, entry in waiting:
                if not entry.waiter.done():
                    entry.waiter.cancel()
                    lane.withdraw(entry)
                elif not entry.waiter.cancelled():
                    entry.waiter.exception()

    async def _positions(
        self, count: int, waiting: list[tuple[Piece, Lane, Records]]
    ) -> Sequence[int]:
        positions = [0] * count
        stored = 0
        for piece, _, entry in waiting:
            try:
                first = await entry.waiter
            except LogError as error:
                if stored:
                    error.add_note(f"{stored} of {count} records were stored before it")
                raise
            stored += len(piece.indexes)
            for offset, index in enumerate(piece.indexes):
                positions[index] = first + offset
        dense = range(positions[0], positions[0] + count)
        return (
            dense
            if positions[-1] == dense[-1] and list(dense) == positions
            else (tuple(positions))
        )

    def _stream_for(self, key: bytes | None, producer: Producer | None) -> int:
        self._cluster.check_open()
        if producer is not None:
            return self.stream_of_producer(producer)
        return self._any_stream() if key is None else self.stream_of(key)

    def _deadline(self, timeout: float | None) -> float:
        if timeout is None:
            timeout = self._settings.timeout_s
        elif not timeout > 0:
            msg = f"timeout must be greater than 0 s, got {timeout}"
            raise InvalidArgumentError(msg)
        return asyncio.get_running_loop().time() + timeout

    async def _take_room(self, size: int, deadline: float) -> None:
        if self._room.take_now(size):
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.take(size)
        except TimeoutError as error:
            limit = self._settings.outstanding_bytes_max
            msg = f"{limit} bytes wait for their acknowledgement"
            raise NotReadyError(msg) from error

    def _entry(
        self,
        piece: Piece,
        producer: Producer | None,
        sequence: int | None,
        deadline: float,
    ) -> Records:
        _check_producer(producer, sequence)
        return Entry(
            asyncio.get_running_loop().create_future(),
            piece.values,
            piece.keys,
            piece.timestamps,
            piece.headers,
            piece.size,
            deadline,
            producer,
            sequence or 0,
        )

    async def _wait(self, lane: Lane, entry: Records) -> int:
        try:
            return await entry.waiter
        except asyncio.CancelledError:
            lane.withdraw(entry)
            raise

    async def next_sequence(self, producer: Producer) -> int:
        """Return the sequence that the producer must send next, 1 if it is unknown.

        The primary is asked with a sequence that it has to refuse.
        """
        row = (b"", None, self._settings.clock(), ())
        try:
            await self.append(row, producer, _SEQUENCE_NEVER, None)
        except SequenceGapError as error:
            return error.expected
        msg = f"sequence {_SEQUENCE_NEVER} of {producer} was not refused"
        raise LogError(msg)


def rows_of(
    appending: Appending,
    values: Iterable[Buffer],
    keys: Iterable[Buffer | None] | None,
    timestamps: Iterable[int | None] | int | None,
    headers: Iterable[Iterable[tuple[str, Buffer]] | None] | None,
) -> list[tuple[bytes, bytes | None, int, Headers]]:
    """Check records that are given by columns, and return them by rows.

    Raises:
        InvalidArgumentError: the columns do not have the same length.
    """
    plain = list(values)
    one = timestamps if isinstance(timestamps, int) else None
    times = None if isinstance(timestamps, int) else timestamps
    columns = [
        _column(name, column, len(plain))
        for name, column in (
            ("keys", keys),
            ("timestamps", times),
            ("headers", headers),
        )
    ]
    return [
        appending.row(value, key, one if time is None else time, named)
        for value, key, time, named in zip(plain, *columns, strict=True)
    ]


def _column(name: str, column: Iterable[Any] | None, count: int) -> Iterator[Any]:
    if column is None:
        return iter([None] * count)
    found = list(column)
    if len(found) != count:
        msg = f"there are {count} values and {len(found)} {name}"
        raise InvalidArgumentError(msg)
    return iter(found)


def _check_producer(producer: Any, sequence: int | None) -> None:
    if producer is None and sequence is None:
        return
    if not isinstance(producer, Producer):
        msg = f"producer must be a Producer, not {producer!r}"
        raise TypeError(msg)
    if sequence is None or not 0 < sequence <= _SEQUENCE_NEVER:
        msg = f"a producer needs a sequence from 1 on, got {sequence!r}"
        raise InvalidArgumentError(msg)


def _bytes(value: Buffer) -> bytes:
    # bytes(5) would be five zeros.
    return value if isinstance(value, bytes) else memoryview(value).tobytes()


def _name(name: Any) -> str:
    if not isinstance(name, str):
        msg = f"the name of a header must be a str, not {name!r}"
        raise TypeError(msg)
    return name


def _size_of(value: bytes, key: bytes | None, headers: Headers) -> int:
    size = _RECORD_COST + len(value) + (0 if key is None else len(key))
    return size + sum(len(name) + len(data) for name, data in headers)
