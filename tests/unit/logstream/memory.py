"""A dumb storage of one stream: a list of calls, replayed from the start.

A crash keeps the calls that were synced, and perhaps some of those behind them.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from braidlog.errors import (
    InvalidArgumentError,
    LogFullError,
    SequenceGapError,
    StoreFailedError,
    TrimmedError,
    UnavailableError,
)
from braidlog.logstream.storage import (
    Batch,
    CommitContext,
    Placed,
    StoredBatch,
    StoredStream,
)
from braidlog.wire.messages import Run

_HEAD = struct.Struct("<4s4xIQQ")
Call = tuple[Any, ...]


def batch(text: str, count: int = 1, producer: int = 0, sequence: int = 0) -> bytes:
    """Return a batch that the replica takes for an encoded one."""
    return _HEAD.pack(b"BRB1", count, producer, sequence) + text.encode()


def text_of(data: Batch) -> str:
    return bytes(data[_HEAD.size :]).decode()


@dataclass
class Model:
    """The stream after some calls."""

    stored: StoredStream = field(
        default_factory=lambda: StoredStream(1, 1, 1, 0, (), CommitContext())
    )
    batches: list[StoredBatch] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    windows: dict[int, dict[int, StoredBatch]] = field(default_factory=dict)
    """Batches by producer and sequence; a trim keeps them."""

    def apply(self, call: Call) -> None:
        getattr(self, call[0])(*call[1:])

    def write(self, epoch: int, data: bytes) -> None:
        _, count, producer, sequence = _HEAD.unpack_from(data)
        self.enter(max(epoch, self.stored.epoch))
        written = StoredBatch(self.stored.next, count, data)
        self.batches.append(written)
        if producer:
            self.windows.setdefault(producer, {})[sequence] = written
        self.stored = replace(self.stored, next=self.stored.next + count)

    def commit(self, context: CommitContext) -> None:
        run = Run(context.llsn_begin, context.glsn_begin, context.length)
        if run.length:
            self.runs.append(run)
        end = self.stored.committed + run.length
        self.stored = replace(self.stored, committed=end, context=context)

    def rollback(self, llsn: int) -> None:
        self.batches = [each for each in self.batches if each.llsn < llsn]
        assert not self.batches or self.batches[-1].end <= llsn
        self.stored = replace(self.stored, next=llsn)
        self.windows = {
            producer: {n: each for n, each in window.items() if each.llsn < llsn}
            for producer, window in self.windows.items()
        }

    def enter(self, epoch: int) -> None:
        if epoch > self.stored.epoch:
            epochs = (*self.stored.epochs, (epoch, self.stored.next))
            self.stored = replace(self.stored, epoch=epoch, epochs=epochs)

    def trim(self, llsn: int) -> None:
        self.batches = [each for each in self.batches if each.end > llsn]
        self.stored = replace(self.stored, low=max(llsn, self.stored.low))

    def restart(self, llsn: int, producers: bytes) -> None:
        self.batches, self.runs = [], []
        self.windows = pickle.loads(producers) if producers else {}
        context = CommitContext(llsn_begin=llsn)
        epoch = self.stored.epoch
        self.stored = StoredStream(llsn, llsn, llsn, epoch, (), context)


class MemoryStorage:
    """`StreamStorage` in memory."""

    def __init__(self, *calls: Call) -> None:
        self.calls = list(calls)
        self.synced = len(calls)
        self.model = Model()
        for call in calls:
            self.model.apply(call)
        self.durable = self.model.stored
        """Where the stream stands on the disk."""
        self.seen: dict[int, tuple[int, str]] = {}
        """Last GLSN and text by LLSN of every batch that was ever committed here."""
        self.failed = False
        self.full = False
        self.stuffed = False
        """Whether there is no room for any write, records or not."""

    def crash(self, kept: int = 0) -> MemoryStorage:
        """Return what a new start finds: what is synced, and `kept` calls more."""
        disk = MemoryStorage(*self.calls[: self.synced + kept])
        disk.seen = self.seen
        return disk

    def sync(self) -> int:
        self.synced = len(self.calls)
        self.durable = self.model.stored
        return self.synced

    def _do(self, *call: Any) -> None:
        if self.failed:
            raise StoreFailedError("the disk is gone")
        if self.stuffed:
            raise UnavailableError("no room for anything")
        self.model.apply(call)
        self.calls.append(call)

    def _check(self, epoch: int, *, room: bool = False) -> None:
        if self.failed:
            raise StoreFailedError("the disk is gone")
        if epoch < self.model.stored.epoch:
            raise InvalidArgumentError(f"epoch {epoch} is over")
        if room and self.full:
            raise LogFullError("no room")

    def state(self) -> StoredStream:
        return self.model.stored

    def append(
        self, epoch: int, batches: Sequence[Batch], *, repeat: bool = False
    ) -> list[Placed]:
        # It forgets no producer, so a repeat is as any other append.
        self._check(epoch, room=True)
        last: dict[int, int] = {}
        for data in batches:
            _, _, producer, sequence = _HEAD.unpack_from(data)
            window = self.model.windows.get(producer)
            known = last.get(producer, max(window, default=0) if window else 0)
            if producer and sequence > known + 1:
                raise SequenceGapError("gap", expected=known + 1)
            last[producer] = max(known, sequence)
        return [self._append(epoch, bytes(data)) for data in batches]

    def _append(self, epoch: int, data: bytes) -> Placed:
        _, count, producer, sequence = _HEAD.unpack_from(data)
        old = self.model.windows.get(producer, {}).get(sequence)
        if old is not None:
            return Placed(old.llsn, old.count, new=False)
        llsn = self.model.stored.next
        self._do("write", epoch, data)
        return Placed(llsn, count, new=True)

    def place(self, epoch: int, llsn: int, batches: Sequence[Batch]) -> None:
        self._check(epoch, room=True)
        if llsn != self.model.stored.next:
            raise InvalidArgumentError("not dense")
        for data in batches:
            self._do("write", epoch, bytes(data))

    def commit(self, epoch: int, context: CommitContext) -> None:
        self._check(epoch)
        stored, last = self.model.stored, self.model.stored.context
        assert context.version >= last.version + (context.length == 0)
        assert context.llsn_begin == stored.committed
        assert context.llsn_end <= stored.next
        assert context.glsn_begin >= max(last.glsn_end, context.length > 0)
        assert context.high_watermark >= last.high_watermark
        self._do("commit", context)
        for each in self.read(context.llsn_begin, context.llsn_end, 1 << 30):
            if context.llsn_begin < each.end <= context.llsn_end:
                glsn = context.glsn_begin + each.end - 1 - context.llsn_begin
                self.seen[each.llsn] = glsn, text_of(each.data)

    def rollback(self, epoch: int, llsn: int) -> None:
        self._check(epoch)
        assert self.model.stored.committed <= llsn <= self.model.stored.next
        self._do("rollback", llsn)

    def enter(self, epoch: int) -> None:
        self._check(epoch)
        self._do("enter", epoch)

    def trim(self, llsn: int) -> None:
        assert llsn <= self.model.stored.committed
        self._do("trim", llsn)

    def restart(self, llsn: int, producers: Batch = b"") -> None:
        self._do("restart", llsn, bytes(producers))

    def producers(self, llsn: int) -> bytes:
        windows = {
            producer: {n: each for n, each in window.items() if each.llsn < llsn}
            for producer, window in self.model.windows.items()
        }
        return pickle.dumps(windows)

    def read(self, begin: int, end: int, bytes_max: int) -> list[StoredBatch]:
        if begin < self.model.stored.low:
            low = self.model.stored.low
            raise TrimmedError(f"{begin} was trimmed", first=low)
        found: list[StoredBatch] = []
        size = 0
        for each in self.model.batches:
            if each.end <= begin or each.llsn >= end:
                continue
            size += len(each.data)
            if found and size > bytes_max:
                break
            found.append(each)
        return found

    def runs(self, begin: int, end: int) -> list[Run]:
        begin = max(begin, self.model.stored.low)
        found = []
        for run in self.model.runs:
            first = max(run.llsn_begin, begin)
            length = min(run.llsn_begin + run.length, end) - first
            if length > 0:
                glsn = run.glsn_begin + first - run.llsn_begin
                found.append(Run(first, glsn, length))
        return found

    def llsn_of(self, glsn: int) -> int:
        stored = self.model.stored
        for run in self.runs(stored.low, stored.committed):
            if glsn < run.glsn_begin + run.length:
                return run.llsn_begin + max(0, glsn - run.glsn_begin)
        return stored.committed

    def ticket(self) -> int:
        return len(self.calls)

    def log(self) -> list[tuple[int, int, str]]:
        """Return (LLSN, GLSN, text) of every committed batch."""
        stored = self.model.stored
        return [
            (each.llsn, self.runs(each.end - 1, each.end)[0].glsn_begin, text)
            for each in self.model.batches
            if each.end <= stored.committed and (text := text_of(each.data))
        ]
