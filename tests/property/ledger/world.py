"""Drivers that store batches, as slowly as one likes: log, ledger and files in memory.

Every effect is one step, and a `Store` is one step for each record, so drivers
interleave and stop anywhere. What a stream does with sequences is what `braidlog`
promises.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from braidlog.errors import (
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    SequenceGapError,
    UnavailableError,
)
from braidlog.spark.sink.ledger import effects as s
from braidlog.spark.sink.ledger.entries import Batch, FileList, StagedFile, digest_of
from braidlog.spark.sink.ledger.lost import StagedFileError
from braidlog.spark.sink.ledger.state import LedgerState, Query

STAGING = "staging"

QUERY = "q"
Row = tuple[int, int, int]
"""Batch, key, number within the key."""


@dataclass
class Stream:
    """Records, and which sequence each producer is at."""

    rows: list[Row] = field(default_factory=list)
    stored: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer, epoch and sequence of each row."""
    window: dict[int, tuple[int, int]] = field(default_factory=dict)

    def append(self, producer: Any, sequence: int, row: Row) -> None:
        epoch, following = self.window.get(producer.id, (0, 1))
        if producer.epoch < epoch:
            raise FencedError("fenced", given=producer.epoch, current=epoch)
        if producer.epoch > epoch:
            following = 1
        if sequence < following:
            return  # A repeat.
        if sequence > following:
            raise SequenceGapError("gap", expected=following)
        self.window[producer.id] = producer.epoch, sequence + 1
        self.rows.append(row)
        self.stored.append((producer.id, producer.epoch, sequence))

    def next(self, producer: Any) -> int | None:
        epoch, following = self.window.get(producer.id, (0, 1))
        if epoch > producer.epoch:
            return None
        return following if epoch == producer.epoch else 1


@dataclass
class World:
    """What outlives drivers."""

    state: Callable[[], LedgerState] = LedgerState
    entries: list[Any] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=lambda: {1: Stream()})
    files: dict[tuple[int, str], dict[str, list[Row]]] = field(default_factory=dict)

    removed: set[int] = field(default_factory=set)
    """Streams that take nothing any more."""

    lists: dict[tuple[int, str], dict[str, tuple[StagedFile, ...]]] = field(
        default_factory=dict
    )

    def read(self) -> LedgerState:
        state = self.state()
        for position, entry in enumerate(self.entries, 1):
            state.apply(position, entry)
        return state

    @property
    def end(self) -> int:
        # One total order is not needed here: each stream's end is enough.
        return 1 + max(len(stream.rows) for stream in self.streams.values())

    def stage(self, batch: int, attempt: str, parts: list[dict[int, list[Row]]]) -> Any:
        """Stage the rows of tasks by stream, and return what the driver proposes."""
        files = []
        staged: dict[str, list[Row]] = {}
        for task, by_stream in enumerate(parts):
            for stream, rows in sorted(by_stream.items()):
                path = f"{batch}/{attempt}/{task}-{stream}"
                staged[path] = rows
                checksum = zlib.crc32(repr(rows).encode())
                size = len(rows)
                files.append(StagedFile(path, stream, size, size, checksum))
        self.files[batch, attempt] = staged
        return Batch(QUERY, batch, attempt, 77, 0, STAGING, tuple(files))

    def rows_of(self, path: str) -> list[Row]:
        for staged in self.files.values():
            if _relative(path) in staged:
                return staged[_relative(path)]
        raise StagedFileError("is gone", file=path)

    def lose(self, choose: Callable[[list[str]], str]) -> None:
        """Lose a file of a batch that is decided and not done."""
        known = self.known()
        if known is not None and not known.done and known.files:
            path = choose([file.path for file in known.files])
            for staged in self.files.values():
                staged.pop(path, None)
        if known is not None and not known.done and known.listed is not None:
            path = choose([known.listed.path, *self.listed(known.listed.path)])
            for staged in self.files.values():
                staged.pop(path, None)
            for lists in self.lists.values():
                lists.pop(path, None)

    def listed(self, path: str) -> list[str]:
        """Return the paths that a list names, none if it is lost."""
        for lists in self.lists.values():
            if path in lists:
                return [file.path for file in lists[path]]
        return []

    def perform(self, effect: Any) -> Any:
        """Do what takes one step."""
        match effect:
            case s.Read():
                return self.read()
            case s.Propose():
                self.entries.append(effect.entry)
            case s.Look():
                return self.end
            case s.CheckFiles():
                there = {path for staged in self.files.values() for path in staged}
                asked = {file.path for file in effect.files}
                return {p: "is gone" for p in asked if _relative(p) not in there}
            case s.WriteList():
                path = f"{effect.batch}/{effect.attempt}/list"
                lists = self.lists.setdefault((effect.batch, effect.attempt), {})
                lists[path] = effect.files
                return FileList(path, 0, 0, len(effect.files), digest_of(effect.files))
            case s.ReadList():
                for lists in self.lists.values():
                    if effect.listed.path in lists:
                        return lists[effect.listed.path]
                return StagedFileError("is gone", file=effect.listed.path)
            case s.AskNext():
                return {
                    stream: 0
                    if stream in self.removed
                    else self.streams[stream].next(producer)
                    for stream, producer in effect.producers.items()
                }
            case s.Home():
                return 1
            case s.Find():
                return self._find(effect)
            case s.RemoveBatches():
                self._remove(lambda batch, _: batch <= effect.up_to)
            case s.RemoveAttempt():
                wanted = effect.batch, effect.attempt
                self._remove(lambda *found: found == wanted)
            case _:
                raise TypeError(effect)
        return None

    def _find(self, effect: Any) -> int:
        who = effect.producer
        sequences = [
            sequence
            for producer, epoch, sequence in self.streams[effect.stream].stored
            if (producer, epoch) == (who.id, who.epoch)
        ]
        return max(sequences, default=0) + 1

    def _remove(self, chosen: Callable[[int, str], bool]) -> None:
        for batch, attempt in [each for each in self.files if chosen(*each)]:
            del self.files[batch, attempt]
        for batch, attempt in [each for each in self.lists if chosen(*each)]:
            del self.lists[batch, attempt]

    def check(self, committed: dict[int, list[Row]]) -> None:
        """Raise unless each committed row is there once, and nothing else is."""
        found = [row for stream in self.streams.values() for row in stream.rows]
        wanted = [row for rows in committed.values() for row in rows]
        assert Counter(found) == Counter(wanted), "each record once"
        for stream in self.streams.values():
            seen: dict[int, tuple[int, int]] = {}
            for batch, key, number in stream.rows:
                assert seen.get(key, (-1, -1)) < (batch, number), "order of a key"
                seen[key] = batch, number

    def known(self) -> Query | None:
        return self.read().query(QUERY)


def _relative(path: str) -> str:
    return path.removeprefix(f"{STAGING}/")


class Driver:
    """Runs a protocol step by step. It may be left standing for ever."""

    def __init__(self, world: World, protocol: Any) -> None:
        self._world = world
        self._protocol = protocol
        self._steps = self._run()
        self.error: Exception | None = None
        self.finished = False

    def step(self) -> bool:
        """Go one step; False if there is none left."""
        if not self.finished:
            try:
                next(self._steps)
            except StopIteration:
                self.finished = True
            except Exception as error:  # noqa: BLE001, RUF100
                self.finished, self.error = True, error
        return not self.finished

    def run(self) -> None:
        while self.step():
            pass

    def _run(self) -> Iterator[None]:
        answer: Any = None
        while True:
            try:
                effect = self._protocol.send(answer)
            except StopIteration:
                return
            if isinstance(effect, tuple):
                answer = yield from self._store(effect)
            else:
                answer = self._world.perform(effect)
                yield

    def _store(self, stores: tuple[s.Store, ...]) -> Generator[None, None, Any]:
        outcomes: list[Any] = []
        for store in stores:
            try:
                yield from self._store_one(store)
                outcomes.append(None)
            except (
                InvalidArgumentError,
                FencedError,
                NotFoundError,
                UnavailableError,
            ) as refused:
                outcomes.append(refused)
        yield
        return outcomes

    def _store_one(self, store: s.Store) -> Iterator[None]:
        sequence, stream = store.sequence, self._world.streams[store.stream]
        for part in store.parts:
            for row in self._world.rows_of(part.file.path)[part.skip :]:
                if store.stream in self._world.removed:
                    raise NotFoundError("it was removed")
                stream.append(store.producer, sequence, row)
                sequence += 1
                yield
