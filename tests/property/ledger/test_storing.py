"""A batch is stored once, however drivers stop, meet, give up and start again.

The protocol runs against a world in memory: exhaustively with two drivers and few
changes between them, at random with zombies, retries and streams that forget. Bugs that
are planted in it must be found by the same runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from braidlog.errors import LogError
from braidlog.spark.sink.ledger import effects, lost, protocol
from braidlog.spark.sink.ledger.entries import Batch, Done
from braidlog.spark.sink.ledger.state import Lane, LedgerState
from property.ledger import world
from property.ledger.world import QUERY, Driver, Row, World

Stored = dict[int, list[Row]]
COMMIT, ABORT = protocol.commit, protocol.abort


def rows_of(batch: int) -> list[Row]:
    return [(batch, key, number) for number in range(2) for key in range(2)]


def parts_of(batch: int, tasks: int, streams: int) -> list[dict[int, list[Row]]]:
    """Spread rows over tasks by key, as one run of them did; another may differ."""
    parts: list[dict[int, list[Row]]] = [{} for _ in range(tasks)]
    for row in rows_of(batch):
        stream = 1 + row[1] % streams
        parts[row[1] % tasks].setdefault(stream, []).append(row)
    return parts


def new_world(streams: int, state: Callable[[], LedgerState] = LedgerState) -> World:
    world = World(state=state)
    stream = type(world.streams[1])
    world.streams = {number: stream() for number in range(1, streams + 1)}
    return world


class Variant:
    """The protocol, or one with a planted bug."""

    def __init__(
        self,
        commit: Callable[[Batch], Any] = COMMIT,
        abort: Callable[[str, int, str], Any] = ABORT,
        state: Callable[[], LedgerState] = LedgerState,
        find: Callable[[Any], int] | None = None,
    ) -> None:
        self.commit, self.abort, self.state, self.find = commit, abort, state, find

    def world(self, streams: int) -> World:
        world = new_world(streams, self.state)
        if self.find is not None:
            world._find = self.find  # type: ignore[assignment, method-assign]
        return world


# -- two drivers, all schedules with few changes between them ------------------------


def schedules(steps: int) -> Iterator[tuple[int, int, int]]:
    """When the first driver stands still, how far the other comes, how far it does."""
    for first in range(steps):
        for second in range(steps):
            for third in (0, 1, 2, 5, steps):
                yield first, second, third


def run_schedule(variant: Variant, schedule: tuple[int, int, int], end: str) -> None:
    """Two drivers have the same batch, with other files; one of them may give up."""
    first, second, third = schedule
    world = variant.world(1)
    early = Driver(world, variant.commit(world.stage(0, "a", parts_of(0, 1, 1))))
    for _ in range(first):
        early.step()
    late = Driver(world, variant.commit(world.stage(0, "b", parts_of(0, 2, 1))))
    for _ in range(second):
        late.step()
    for _ in range(third):
        early.step()
    if end == "abort":
        Driver(world, variant.abort(QUERY, 0, "a")).run()
    if end != "crash":
        early.run()
    late.run()
    # The restarted query has the batch again, and goes on to the next.
    committed: Stored = {}
    for batch in (0, 1):
        last = world.stage(batch, f"c{batch}", parts_of(batch, 2, 1))
        driver = Driver(world, variant.commit(last))
        driver.run()
        assert driver.error is None, repr(driver.error)
        committed[batch] = rows_of(batch)
    world.check(committed)
    assert not world.files, "what was staged is removed"
    assert not world.lists, "and the lists of it"


def explore(variant: Variant, every: int = 1) -> None:
    for number, schedule in enumerate(schedules(16)):
        if number % every == 0:
            for end in ("run", "crash", "abort"):
                run_schedule(variant, schedule, end)


# -- a query of several batches at random --------------------------------------------


class Run:
    """One history: batches, attempts that stand still, streams that forget."""

    def __init__(
        self,
        variant: Variant,
        seed: int,
        *,
        loses: bool = False,
        removes: bool = False,
    ) -> None:
        self.choice = random.Random(seed)
        self.loses, self.removes = loses, removes
        self.streams = self.choice.choice((1, 2))
        self.variant = variant
        self.world = variant.world(self.streams)
        self.zombies: list[Driver] = []
        self.attempts = 0

    def play(self) -> None:
        committed: Stored = {}
        for batch in range(3):
            while not self.attempt(batch):
                pass
            committed[batch] = rows_of(batch)
            self.world.check(self.visible(committed))
        for zombie in self.zombies:
            zombie.run()
        self.world.check(committed)

    def visible(self, committed: Stored) -> Stored:
        # Zombies store nothing of a batch that is not decided, and it is done.
        return committed

    def attempt(self, batch: int) -> bool:
        """Run the tasks of a batch and its commit; False if it has to be repeated."""
        self.attempts += 1
        assert self.attempts < 40, "no driver gets any further"
        attempt = f"{batch}.{self.attempts}"
        parts = parts_of(batch, self.choice.choice((1, 2)), self.streams)
        driver = Driver(
            self.world, self.variant.commit(self.world.stage(batch, attempt, parts))
        )
        last = self.attempts % 6 == 0  # It comes to an end some time.
        steps = 99 if last else self.choice.choice((0, 3, 5, 8, 11, 99))
        for _ in range(steps):
            if not driver.step():
                break
            self.disturb()
        if driver.finished and driver.error is None:
            return True
        assert driver.error is None or isinstance(driver.error, LogError)
        if self.choice.random() < 0.5:
            self.zombies.append(driver)
        if self.choice.random() < 0.5:
            aborting = Driver(self.world, self.variant.abort(QUERY, batch, attempt))
            self.zombies.append(aborting)
            for _ in range(self.choice.choice((0, 1, 2, 9))):
                aborting.step()
        if not self.zombies and self.choice.random() < 0.5:
            # Two hundred others have stored since; nobody is on his way meanwhile.
            for stream in self.world.streams.values():
                stream.window.clear()
        return False

    def disturb(self) -> None:
        if self.zombies and self.choice.random() < 0.5:
            self.choice.choice(self.zombies).step()
        if self.removes and self.streams > 1 and self.choice.random() < 0.05:
            self.world.removed.add(2)
        if self.loses and self.choice.random() < 0.05:
            self.world.lose(self.choice.choice)


def histories(
    variant: Variant, count: int, *, loses: bool = False, removes: bool = False
) -> None:
    for seed in range(count):
        try:
            Run(variant, seed, loses=loses, removes=removes).play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.fixture(params=[protocol.FILES_INLINE, 0], ids=["in the entry", "listed"])
def _where_files_are_named(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "FILES_INLINE", request.param)


named_in_both_ways = pytest.mark.usefixtures("_where_files_are_named")


@named_in_both_ways
def test_two_drivers_store_a_batch_once() -> None:
    explore(Variant(), every=3)


@named_in_both_ways
def test_histories_of_a_query() -> None:
    histories(Variant(), 400)


@named_in_both_ways
def test_histories_that_lose_staged_files() -> None:
    """A run that gives the same finishes what was decided; another one is refused."""
    histories(Variant(), 200, loses=True)


def test_a_list_of_other_records_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a run of as many files takes the place of a list that is lost."""
    monkeypatch.setattr(protocol, "FILES_INLINE", 0)
    monkeypatch.setattr(lost, "digest_of", lambda _: "")
    monkeypatch.setattr(world, "digest_of", lambda _: "")
    with pytest.raises(AssertionError):
        histories(Variant(), 400, loses=True)


def test_a_file_with_other_records_is_no_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: one with as many records for the stream is taken."""
    monkeypatch.setattr(lost, "_content", lambda file: (file.stream, file.records))
    with pytest.raises(AssertionError):
        histories(Variant(), 200, loses=True)


# -- planted bugs --------------------------------------------------------------------


class LastCounts(LedgerState):
    """The last entry for a batch counts while it is not done."""

    def _decide(self, entry: Batch) -> None:
        query = self.queries.get(entry.query)
        if query is not None and not query.done and query.batch == entry.batch:
            for lane in query.lanes.values():
                lane.next = lane.first
            query.batch, query.done = entry.batch - 1, True
        super()._decide(entry)


class EachBatchAnew(LedgerState):
    """Sequences begin with 1 in each batch."""

    def _decide(self, entry: Batch) -> None:
        super()._decide(entry)
        for lane in self.queries[entry.query].lanes.values():
            lane.first, lane.next = 1, 1 + lane.next - lane.first


class ForgetsVoid(LedgerState):
    """An attempt that was given up counts all the same."""

    def _void(self, entry: Any) -> None:
        pass


def remove_at_once(proposal: Batch) -> Any:
    """Remove what is staged when the batch is decided."""
    answer: Any = None
    protocol = COMMIT(proposal)
    while True:
        try:
            effect = protocol.send(answer)
        except StopIteration:
            return
        answer = yield effect
        if isinstance(effect, effects.Propose) and isinstance(effect.entry, Batch):
            yield effects.RemoveBatches(proposal.query, proposal.batch - 1)
            yield effects.RemoveAttempt(proposal.query, proposal.batch, "a")


def done_first(proposal: Batch) -> Any:
    """Say that a batch is done before its records are sent."""
    answer: Any = None
    protocol = COMMIT(proposal)
    while True:
        try:
            effect = protocol.send(answer)
        except StopIteration:
            return
        if isinstance(effect, tuple):
            yield effects.Propose(Done(proposal.query, proposal.batch, 1))
        answer = yield effect


def abort_without_looking(query: str, batch: int, attempt: str) -> Any:
    yield effects.RemoveAttempt(query, batch, attempt)


def abort_without_entry(query: str, batch: int, attempt: str) -> Any:
    state = yield effects.Read()
    known = state.query(query)
    if known is None or not known.needs(batch, attempt):
        yield effects.RemoveAttempt(query, batch, attempt)


PLANTED = {
    "the last entry counts": Variant(state=LastCounts),
    "sequences begin anew": Variant(state=EachBatchAnew),
    "void attempts count": Variant(state=ForgetsVoid),
    "files go when decided": Variant(commit=remove_at_once),
    "done before it is": Variant(commit=done_first),
    "abort never looks": Variant(abort=abort_without_looking),
    "abort leaves no entry": Variant(abort=abort_without_entry),
    "nobody searches": Variant(find=lambda _: 1),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    variant = PLANTED[name]

    def look_for_it() -> None:
        explore(variant)
        histories(variant, 400)

    with pytest.raises((AssertionError, KeyError)):
        look_for_it()


def test_a_lane_begins_with_one() -> None:
    assert (Lane().first, Lane().next) == (1, 1)


@named_in_both_ways
def test_a_batch_is_stored_once_although_a_stream_is_removed() -> None:
    histories(Variant(), 600, removes=True)
    histories(Variant(), 200, removes=True, loses=True)


def test_what_a_removed_stream_has_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the heir begins with the first record of the batch."""
    right = World._find

    def nothing_there(self: World, effect: Any) -> int:
        return 1 if effect.stream in self.removed else right(self, effect)

    monkeypatch.setattr(World, "_find", nothing_there)
    with pytest.raises(AssertionError):
        histories(Variant(), 600, removes=True)
