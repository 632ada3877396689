"""The appends of one client to one log: their streams, pieces and bytes."""
# One file: one way to the streams, also while these are changed.

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

from braidlog._native import Entry, Line
from braidlog.client.append.byte_budget import ByteBudget
from braidlog.client.append.change import Moved, Search, StreamChange
from braidlog.client.append.flush import Flush
from braidlog.client.append.parts import Parts, divide, positions_of
from braidlog.client.append.pieces import OpenPiece, Piece
from braidlog.client.append.rows import (
    SEQUENCE_NEVER,
    Row,
    Rows,
    check_producer,
    size_of,
)
from braidlog.client.append.stream_appender import (
    Records,
    StreamAppender,
    Waiter,
)
from braidlog.client.batches import BatchCodec, Columns, Encoded
from braidlog.client.connection.cluster import Cluster
from braidlog.client.connection.routing import RoundRobin, stream_index
from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    NotReadyError,
    SequenceGapError,
)
from braidlog.store.arguments import (
    checked_timeout,
)
from braidlog.store.catalog import LogOptions
from braidlog.types import Compression, Producer
from braidlog.wire.features import needed
from braidlog.wire.messages import Feature


class LogAppender:
    """The appenders of the streams of a log, and what they share."""

    def __init__(
        self, cluster: Cluster, log: bytes, codec: BatchCodec, search: Search
    ) -> None:
        """Begin with a producer that nobody else has.

        ``search`` finds what is stored when the streams of the log were changed.
        """
        settings = cluster.settings
        self.end = 1
        # Asked for each append, it would be a system call each time.
        self._loop = asyncio.get_running_loop()
        self._cluster = cluster
        self._settings = settings
        self._log = log
        self._codec = codec
        self._search = search
        self._producer = self._new_producer()
        self.rows = Rows(
            settings.record_bytes_max,
            settings.clock,
            lambda: cluster.routes.require(Feature.NULL_VALUES),
        )
        self._budget = ByteBudget(settings.outstanding_bytes_max)
        self._flush = Flush(self._loop)
        self._round_robin = RoundRobin()
        self._appenders: dict[int, StreamAppender] = {}
        self._ended: LogError | None = None
        self._generation = cluster.routes.generation(log)
        """Of the streams of the log, to which the appenders send."""
        self._options: tuple[bytes | None, Compression] = None, "none"
        """As stored, and what they say of compression: each batch asks for that."""
        self._change: StreamChange | None = None
        self._parted: dict[Waiter, Parts] = {}
        self.keyless: Line[Waiter] | None = None
        """Where records without a key go, until a batch is closed or routes change."""
        self._keyed: tuple[Line[Waiter], ...] = ()
        """Where those with one go, by the index of its stream, until routes change."""
        self._running: tuple[int, ...] = ()
        """The streams that took appends when `keyless` was chosen."""
        cluster.listen(self._routes_changed)

    def _compression(self) -> Compression:
        options = self._cluster.routes.log(self._log).options
        if options != self._options[0]:
            self._options = options, LogOptions.decode_or_default(options).compression
        return self._options[1]

    def _new_producer(self) -> Producer:
        entropy = self._settings.entropy(8)
        return Producer(int.from_bytes(entropy, "little") or 1)

    def _routes_changed(self) -> None:
        self.keyless, self._keyed, self._running = None, (), ()
        if self._cluster.routes.generation(self._log) > self._generation:
            self._change_streams()
        for appender in self._appenders.values():
            appender.routes_changed()

    def close(self, error: LogError | None = None) -> None:
        """Fail what is not settled, and what comes."""
        self._ended = error or ClosedError("the client is closed")
        self._cluster.unlisten(self._routes_changed)
        self.keyless, self._keyed, self._running = None, (), ()
        if self._change is not None:
            self._change.close(self._ended)
        for appender in self._appenders.values():
            appender.close(self._ended)

    # -- changes of the streams --------------------------------------------------

    def _change_streams(self) -> None:
        """Settle what is under way, and let what comes wait for that."""
        self._generation = self._cluster.routes.generation(self._log)
        left = [appender.leave() for appender in self._appenders.values()]
        # What an earlier one sent cannot come behind what the next ones send.
        self._appenders, self._producer = {}, self._new_producer()
        left = [each for each in left if each.batches or each.waiting]
        if self._change is None and left:
            self._change = StreamChange(
                left,
                self._search,
                self._budget,
                self._cluster.backoff(),
                self._settings.share,
                self._changed,
            )

    def _changed(self, anew: Sequence[Moved]) -> None:
        self._change = None
        for moved in anew:
            self._put_anew(moved.entry, moved.stream)

    def _put(
        self, entry: Records, stream: int, generation: int, *, fixed: bool = False
    ) -> None:
        """Append to a stream chosen in a generation; ``fixed``: by the caller."""
        if self._change is not None:
            self._change.hold(entry, stream if fixed else None)
        elif generation != self._generation:
            self._put_anew(entry, stream if fixed else None)
        else:
            self._appender_of(stream).add(entry)

    def _put_anew(self, entry: Records, stream: int | None) -> None:
        """Append what was for other streams, or came while these were changed."""
        try:
            streams = self._streams_anew(entry, stream)
        except LogError as error:
            self._budget.give(entry.size)
            if not entry.waiter.done():
                entry.waiter.set_exception(error)
            return
        if len(set(streams)) == 1:
            self._appender_of(streams[0]).add(entry)
            return
        parts = divide(
            entry,
            streams,
            lambda records, count, size: Entry(
                self._loop.create_future(), records, count, size, entry.deadline
            ),
        )
        parted = Parts(entry, [part for _, part in parts], self._take_back)
        self._parted[entry.waiter] = parted
        entry.waiter.add_done_callback(self._joined)
        for target, (_, part) in parts:
            self._appender_of(target).add(part)

    def _joined(self, waiter: Waiter) -> None:
        self._parted.pop(waiter, None)

    def _streams_anew(self, entry: Records, stream: int | None) -> Sequence[int]:
        """Return the stream of all records of an entry, or that of each of them."""
        producer = entry.producer
        if producer is not None:
            if stream is None:
                stream = self.stream_of_producer(producer)
            self._require_open(stream)
            return (stream,)
        keys = entry.records[1]
        keyless = self._any_stream()
        if keys is None:
            return (keyless,)
        return [keyless if key is None else self.stream_of(key) for key in keys]

    def is_open(self, stream: int) -> bool:
        """Tell whether a stream is one of the log and was not removed."""
        removed = self._cluster.routes.removed(self._log)
        return stream not in removed and stream in self._cluster.streams_of(self._log)

    def _require_open(self, stream: int) -> None:
        """Refuse an append to a stream that takes none any more.

        Raises:
            NotFoundError: it was removed.
        """
        if not self.is_open(stream):
            raise NotFoundError(
                f"stream {stream} was removed from the log: it takes no appends any "
                "more. Choose one of the streams that the log has now"
            )

    # -- records -----------------------------------------------------------------

    def pieces(self, rows: Sequence[Row], *, whole: bool) -> list[tuple[int, Piece]]:
        """Return the batches for records, each with its stream, in order.

        Records with a key go to its stream, those without to one stream together;
        ``whole``: all go to one, because the sequences of a producer need it.
        """
        open_pieces: dict[int, OpenPiece] = {}
        done: list[tuple[int, Piece]] = []
        keyless = None if whole else self._any_stream()
        limit = self._settings
        for index, row in enumerate(rows):
            key = row[1]
            stream = 0
            if keyless is not None:
                stream = keyless if key is None else self.stream_of(key)
            piece = open_pieces.get(stream)
            size = size_of(row)
            if piece is not None and (
                piece.size + size > limit.batch_bytes_max
                or len(piece) >= limit.batch_records_max
            ):
                done.append((stream, piece.close()))
                piece = None
            if piece is None:
                piece = open_pieces[stream] = OpenPiece()
            piece.add(index, row, size)
        last = [(stream, piece.close()) for stream, piece in open_pieces.items()]
        return done + last

    # -- streams -----------------------------------------------------------------

    def stream_of(self, key: bytes) -> int:
        """Return the stream of a key."""
        return self._cluster.routes.stream_of(self._log, key)

    def stream_of_producer(self, producer: Producer) -> int:
        """Return the stream of a producer that the caller brings."""
        return self._cluster.routes.stream_of_producer(self._log, producer.id)

    def _any_stream(self) -> int:
        routes = self._cluster.routes
        running = routes.running(self._log)
        if not running:
            # It waits there until one of them runs.
            running = tuple(sorted(self._cluster.streams_of(self._log)))
        if not running:
            raise NotReadyError("the log has no stream yet")
        return self._round_robin.current(running)

    def _appender_of(self, stream: int) -> StreamAppender:
        appender = self._appenders.get(stream)
        if appender is None:
            appender = self._appenders[stream] = StreamAppender(
                self._cluster,
                stream,
                self._producer,
                self._codec,
                self._compression,
                self._budget,
                self._flush,
                self._closed_batch,
                self.reached,
                self._known_end,
            )
        return appender

    def _closed_batch(self, stream: int) -> None:
        running = self._running
        if len(running) != 1:
            self._round_robin.advance(stream)
        if len(running) > 1:
            self.keyless = self._appender_of(self._round_robin.current(running)).line

    def _known_end(self) -> int:
        known = self._cluster.routes.log(self._log).high_watermark + 1
        return max(self.end, known)

    def reached(self, end: int) -> None:
        """Take note that the log goes at least up to ``end``."""
        if end > self.end:
            self.end = end

    # -- append ------------------------------------------------------------------

    def plain(self, value: object, key: object) -> Records | None:
        """Append a record as `begin` does, if the core takes it by itself.

        None if it has to be checked, or its stream be chosen, or there is no room.
        """
        if key is None:
            line = self.keyless
            return None if line is None else line.append(value)
        keyed = self._keyed
        if not keyed or type(key) is not bytes:
            return None
        return keyed[stream_index(key, len(keyed))].append(value, key)

    def begin(
        self,
        row: Row,
        size: int,
        producer: Producer | None,
        sequence: int | None,
        timeout: float | None,
    ) -> Records | None:
        """Append one record of `size` bytes; None if there is no room for it.

        Its waiter gets the position. Who waits no more withdraws it.
        """
        deadline = self._deadline(timeout)
        if not self._budget.take_now(size):
            return None
        return self._begin(row, size, producer, sequence, deadline)

    def withdraw(self, entry: Records) -> None:
        """Take a record back that nobody waits for, if it was not sent."""
        self._take_back(entry)

    def _take_back(self, entry: Records) -> bool:
        """Take records back; False if they may be stored."""
        if (parted := self._parted.get(entry.waiter)) is not None:
            return parted.withdraw()
        if self._change is not None:
            known = self._change.withdraw(entry)
            if known is not None:
                return known
        return any(each.withdraw(entry) for each in self._appenders.values())

    async def position(self, entry: Records) -> int:
        """Return the position of the first record of an entry once it is durable.

        Whoever is cancelled meanwhile withdraws it.
        """
        try:
            return await entry.waiter
        except asyncio.CancelledError:
            self.withdraw(entry)
            raise

    async def begin_later(
        self,
        row: Row,
        size: int,
        producer: Producer | None,
        sequence: int | None,
        timeout: float | None,  # noqa: ASYNC109
        stream: int | None = None,
    ) -> Records:
        """Wait for room, then append as `begin` does; to a stream, if one is named."""
        deadline = self._deadline(timeout)
        await self._take_room(size, deadline)
        return self._begin(row, size, producer, sequence, deadline, stream)

    def _begin(
        self,
        row: Row,
        size: int,
        producer: Producer | None,
        sequence: int | None,
        deadline: float,
        stream: int | None = None,
    ) -> Records:
        value, key, timestamp, headers = row
        keys = None if key is None else (key,)
        records = Columns((value,), keys, timestamp, (headers,) if headers else None)
        try:
            entry = self._entry(records, size, producer, sequence, deadline)
            # Chosen when there is room, so that its stream is one that runs then.
            if self._change is not None:
                self._change.hold(entry, stream)
            elif stream is not None:
                self._require_open(stream)
                self._appender_of(stream).add(entry)
            elif key is None and producer is None:
                self._any_appender().add(entry)
            else:
                check_producer(producer, sequence)
                appender = self._appender_of(self._stream_for(key, producer))
                if not self._keyed and key is not None:
                    streams = self._cluster.routes.key_streams(self._log)
                    self._keyed = tuple(self._appender_of(s).line for s in streams)
                appender.add(entry)
        except BaseException:
            self._budget.give(size)
            raise
        return entry

    def _any_appender(self) -> StreamAppender:
        appender = self._appender_of(self._any_stream())
        self._running = self._cluster.routes.running(self._log)
        self.keyless = appender.line
        return appender

    async def append_many(
        self,
        rows: Sequence[Row],
        producer: Producer | None,
        sequence: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Sequence[int]:
        """Append records; see `AsyncClusterLog.append_many`."""
        self._cluster.check_open()
        deadline = self._deadline(timeout)
        check_producer(producer, sequence)
        if not rows:
            end = max(
                self.end,
                (await self._cluster.linearize(self._log)).log(self._log).high_watermark
                + 1,
            )
            return range(end, end)
        generation = self._generation
        pieces = self.pieces(rows, whole=producer is not None)
        return await self._append(
            len(rows), pieces, producer, sequence, deadline, generation
        )

    async def append_plain(
        self,
        values: list[Any],
        timestamp: int | None,
        producer: Producer | None,
        sequence: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Sequence[int] | None:
        """Append values that make one piece; None if they do not, and nothing is done.

        They are those of `append_many` without keys and headers.
        """
        limits = self._settings
        if not 0 < len(values) <= limits.batch_records_max:
            return None
        known = self.rows.plain(values, timestamp)
        if known is None or known[2] > limits.batch_bytes_max:
            return None
        self._cluster.check_open()
        deadline = self._deadline(timeout)
        check_producer(producer, sequence)
        piece = Piece.plain(*known)
        stream = 0
        if producer is None:
            waits = self._change is not None
            stream = self._any_stream() if waits else self._any_appender().stream
        pieces = [(stream, piece)]
        return await self._append(
            len(values), pieces, producer, sequence, deadline, self._generation
        )

    async def _append(
        self,
        count: int,
        pieces: Sequence[tuple[int, Piece]],
        producer: Producer | None,
        sequence: int | None,
        deadline: float,
        generation: int,
    ) -> Sequence[int]:
        waiting: list[tuple[Piece, Records]] = []
        try:
            for stream, piece in pieces:
                if producer is not None:
                    stream = self.stream_of_producer(producer)
                await self._take_room(piece.size, deadline)
                entry = self._entry(
                    piece.records, piece.size, producer, sequence, deadline
                )
                self._put(entry, stream, generation)
                waiting.append((piece, entry))
                sequence = None if sequence is None else sequence + len(piece.indexes)
            if len(waiting) == 1:
                return _dense(positions_of(await waiting[0][1].waiter, count))
            return await self._positions(count, waiting)
        except LogError as error:
            _tell_of_the_others(error, count, waiting, self._take_back)
            raise
        finally:
            for _, entry in waiting:
                if not entry.waiter.done():
                    self._take_back(entry)
                    entry.waiter.cancel()
                elif not entry.waiter.cancelled():
                    entry.waiter.exception()

    async def _positions(
        self, count: int, waiting: list[tuple[Piece, Records]]
    ) -> Sequence[int]:
        positions = [0] * count
        for piece, entry in waiting:
            places = positions_of(await entry.waiter, len(piece.indexes))
            for index, position in zip(piece.indexes, places, strict=True):
                positions[index] = position
        return _dense(positions)

    def _stream_for(self, key: bytes | None, producer: Producer | None) -> int:
        if producer is not None:
            return self.stream_of_producer(producer)
        return self._any_stream() if key is None else self.stream_of(key)

    def _deadline(self, timeout: float | None) -> float:
        timeout = checked_timeout(timeout)
        if timeout is None:
            timeout = self._settings.timeout_s
        elif not timeout > 0:
            msg = f"timeout must be greater than 0 seconds, got {timeout}"
            raise InvalidArgumentError(msg)
        return self._loop.time() + timeout

    async def _take_room(self, size: int, deadline: float) -> None:
        if self._budget.take_now(size):
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._budget.take(size)
        except TimeoutError as error:
            raise self.no_room() from error
        try:
            self._check_open()
        except BaseException:
            self._budget.give(size)
            raise

    def no_room(self) -> NotReadyError:
        """Return the error for what has no room."""
        limit = self._settings.outstanding_bytes_max
        return NotReadyError(
            f"{limit} bytes (outstanding_bytes_max) wait to be acknowledged, so "
            "nothing more fits"
        )

    def _check_open(self) -> None:
        """Raise what ended the appends to this log, if anything did."""
        self._cluster.check_open()
        if self._ended is not None:
            raise copy.copy(self._ended)

    def _entry(
        self,
        records: Columns,
        size: int,
        producer: Producer | None,
        sequence: int | None,
        deadline: float,
    ) -> Records:
        if producer is not None or sequence is not None:
            check_producer(producer, sequence)
        return Entry(
            self._loop.create_future(),
            records,
            len(records.values),
            size,
            deadline,
            producer,
            sequence or 0,
        )

    async def append_encoded(
        self, stream: int, batch: Encoded, producer: Producer, sequence: int
    ) -> asyncio.Future[int]:
        """Begin to append an encoded batch to a stream, when there is room for it.

        The future gives the position of its first record.
        """
        self._cluster.check_open()
        self._cluster.routes.require(needed(batch.data))
        deadline, size = self._deadline(None), len(batch.data)
        check_producer(producer, sequence)
        await self._take_room(size, deadline)
        waiter: asyncio.Future[int] = self._loop.create_future()
        entry = Entry(waiter, batch, batch.records, size, deadline, producer, sequence)
        try:
            self._require_open(stream)
            self._put(entry, stream, self._generation, fixed=True)
        except BaseException:
            self._budget.give(size)
            raise
        return waiter

    async def next_sequence(self, producer: Producer, stream: int | None = None) -> int:
        """Return the sequence that the producer must send next, 1 if it is unknown.

        In the stream where all goes that it appends, or in another one. The primary is
        asked with a sequence that it has to refuse.
        """
        row, size = self.rows.sized(b"", None, None, None)
        sequence = SEQUENCE_NEVER
        try:
            entry = await self.begin_later(row, size, producer, sequence, None, stream)
            await entry.waiter
        except SequenceGapError as error:
            return error.expected
        msg = f"the primary did not refuse sequence {SEQUENCE_NEVER} of {producer}"
        raise LogError(msg)


def _dense(positions: Sequence[int]) -> Sequence[int]:
    """Return positions as a range if they are in a row, otherwise as a tuple."""
    dense = range(positions[0], positions[0] + len(positions))
    in_a_row = positions[-1] == dense[-1] and list(dense) == list(positions)
    return dense if in_a_row else tuple(positions)


def _tell_of_the_others(
    error: LogError,
    count: int,
    waiting: Sequence[tuple[Piece, Records]],
    take_back: Callable[[Records], bool],
) -> None:
    """Say of an error of one piece what became of the other ones.

    "not_stored" would be a lie: whoever is told so appends all of them again.
    """
    stored, open_ = 0, False
    for piece, entry in waiting:
        waiter = entry.waiter
        if not waiter.done():
            open_ |= not take_back(entry)
        elif not waiter.cancelled() and (failure := waiter.exception()) is None:
            stored += len(piece.indexes)
        elif isinstance(failure, LogError):
            open_ |= failure.outcome != "not_stored"
    if stored:
        error.add_note(f"{stored} of {count} records are stored")
    if (stored or open_) and error.outcome == "not_stored":
        error.outcome = "unknown"
