"""Requests that wait for shards: bounded, with a share for each connection."""

from __future__ import annotations

from typing import cast

import pytest

from braidlog.errors import NotReadyError
from braidlog.node.shards.waiting import WAITING_MAX, WAITING_OF_ONE_MAX, Waiting
from braidlog.serving.sessions import Session


def sessions(count: int) -> list[Session]:
    return [cast("Session", object()) for _ in range(count)]


def fill(waiting: Waiting, session: Session) -> int:
    """Ask until it is refused; return how often it was not."""
    for number in range(WAITING_MAX + 1):
        try:
            waiting.take(session)
        except NotReadyError:
            return number
    raise AssertionError("it is never refused")


def test_one_that_takes_what_it_can_leaves_something_to_each() -> None:
    here = sessions(20)
    waiting = Waiting(lambda: len(here))
    assert fill(waiting, here[0]) == WAITING_OF_ONE_MAX
    taken = [fill(waiting, each) for each in here[1:]]
    assert min(taken) >= 1
    assert len(waiting) <= WAITING_MAX
    # Whoever comes last has its place all the same.
    assert taken[-1] >= WAITING_MAX // 2 // len(here)


def test_a_new_connection_is_always_let_in() -> None:
    here = sessions(3)
    waiting = Waiting(lambda: 100_000)
    for _ in range(WAITING_MAX):
        waiting.take(cast("Session", object()))
    waiting.take(here[0])
    with pytest.raises(NotReadyError):
        waiting.take(here[0])


def test_what_is_answered_waits_no_more() -> None:
    (one,) = sessions(1)
    waiting = Waiting(lambda: 1)
    for _ in range(3):
        waiting.take(one, 10)
        for _ in range(10):
            waiting.give(one)
    assert len(waiting) == 0
    assert not waiting._of
