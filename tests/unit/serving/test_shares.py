"""Turns, work and answers of connections: none gets more than its share."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from braidlog.serving import shares
from braidlog.serving.shares import ShareBounds, Shares

USUAL = ShareBounds()


class Client:
    """A connection with requests that wait."""

    def __init__(self, waiting: int = 0) -> None:
        self.waiting = waiting
        self.room = True
        self.counts = False
        self.unread_bytes = 0
        self.served: list[int] = []
        self.closed: list[bool] = []

    @property
    def paced(self) -> bool:
        return self.counts

    @property
    def ready(self) -> bool:
        return bool(self.waiting) and self.room

    def serve_one(self) -> None:
        self.waiting -= 1
        self.served.append(len(ORDER))
        ORDER.append(self)

    def stalls(self) -> None:
        self.closed.append(True)


ORDER: deque[Client] = deque()


def full(share: Shares) -> bool:
    return share.full


async def turn() -> None:
    await asyncio.sleep(0)


async def test_turns_go_round() -> None:
    ORDER.clear()
    share = Shares()
    greedy, *others = [Client(10_000), *(Client(3) for _ in range(5))]
    share.look(greedy)
    await turn()
    await turn()
    for each in others:
        share.look(each)
    before = len(ORDER)
    await turn()
    assert len(ORDER) - before == shares.TURN
    # The greedy one had its turn between each of theirs, not before all.
    assert all(len(each.served) == 3 for each in others)
    assert max(each.served[-1] for each in others) < before + 6 * 3 + 1
    greedy.waiting = 0
    share.gone(greedy)


async def test_a_turn_has_a_bound() -> None:
    share = Shares()
    taken = [share.takes(paced=False) for _ in range(shares.TURN + 1)]
    assert taken[-2:] == [True, False]
    await turn()
    await turn()
    assert share.takes(paced=False)


async def test_questions_and_commands_have_a_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reads of others go on meanwhile, and all who ask get their turn."""
    ORDER.clear()
    share = Shares()
    now = asyncio.get_running_loop().time()
    monkeypatch.setattr(share._loop, "time", lambda: now)
    share._filled_at = now
    greedy, other, reader = Client(10_000), Client(1), Client(1000)
    greedy.counts = other.counts = True
    share.look(greedy)
    for _ in range(100):
        await turn()
    assert len(greedy.served) == USUAL.burst
    share.look(other)
    share.look(reader)
    for _ in range(100):
        await turn()
    assert len(reader.served) == 1000
    assert len(greedy.served) == USUAL.burst
    assert not other.served
    assert not share.takes(paced=True)
    now += 3.5 / USUAL.rate
    share._again()
    await turn()
    assert len(greedy.served) == USUAL.burst + 2
    assert len(other.served) == 1
    now += 3600.0
    share._again()
    for _ in range(100):
        await turn()
    assert len(greedy.served) == 2 * USUAL.burst + 2
    share.gone(greedy)


async def test_who_has_no_room_is_looked_at_again() -> None:
    ORDER.clear()
    share = Shares()
    busy = Client(1)
    busy.room = False
    share.look(busy)
    share.tick(0.0)
    await turn()
    assert not busy.served
    busy.room = True
    share.tick(0.05)
    await turn()
    assert busy.served


async def test_who_does_not_take_its_answers_makes_room() -> None:
    ORDER.clear()
    share = Shares()
    stalled, slow, good = Client(), Client(), Client(1)
    stalled.unread_bytes = slow.unread_bytes = USUAL.unread_of_all_max // 2
    share.unread(stalled, 0.0)
    share.unread(slow, 4.0)
    share.answered(USUAL.unread_of_all_max)
    assert full(share)
    share.look(good)
    share.tick(1.0)
    await turn()
    assert not good.served
    assert not stalled.closed
    share.tick(USUAL.stalled_s)
    await turn()
    assert stalled.closed
    assert not slow.closed
    assert good.served
    for each in (stalled, slow, good):
        share.gone(each)
    assert not share._line
    assert not share._held
    assert not share._unread
