"""Waiting for records: deadlines, many waiters, close, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from braidlog import Log, Store
from braidlog.errors import (
    InvalidArgumentError,
    NotFoundError,
    PositionError,
    TrimmedError,
)
from unit.store.conftest import Opener


def test_waiting_for_what_is_there(ten: Log) -> None:
    assert ten.wait(1)
    assert ten.wait(10, timeout=0)
    assert ten.wait(10, timeout=float("inf"))
    with pytest.raises(PositionError):
        ten.wait(0)
    assert not ten.wait(11, timeout=0)
    assert not ten.wait(11, timeout=-5)
    assert not ten.wait(11, timeout=0.01)


@pytest.mark.parametrize("read_only", [False, True])
def test_times_that_make_no_sense(ten: Log, opener: Opener, read_only: bool) -> None:
    log = opener(read_only=True).log("orders") if read_only else ten
    with pytest.raises(InvalidArgumentError, match="seconds"):
        log.wait(11, timeout=float("nan"))
    with pytest.raises(TypeError):
        log.wait(11, timeout="1")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="seconds"):
        ten.submit(b"").wait(float("nan"))


@pytest.mark.parametrize("read_only", [False, True])
def test_many_waiters_for_different_positions(
    log: Log, opener: Opener, read_only: bool
) -> None:
    waited = opener(read_only=True).log("orders") if read_only else log
    with ThreadPoolExecutor(20) as pool:
        waiting = {i: pool.submit(waited.wait, i, timeout=10) for i in range(1, 21)}
        log.append_many([b""] * 10)
        assert all(waiting[i].result() for i in range(1, 11))
        assert not any(waiting[i].done() for i in range(11, 21))
        log.append_many([b""] * 10)
        assert all(each.result() for each in waiting.values())


@pytest.mark.parametrize("read_only", [False, True])
def test_a_subscription_sees_every_record_once(
    log: Log, opener: Opener, read_only: bool
) -> None:
    followed = opener(read_only=True).log("orders") if read_only else log
    started = threading.Event()

    def follow() -> list[int]:
        found = []
        for record in followed.subscribe():
            started.set()
            found.append(record.position)
            if record.value == b"last":
                return found
        return found

    with ThreadPoolExecutor(4) as pool:
        following = [pool.submit(follow) for _ in range(4)]
        log.append(b"first")
        assert started.wait(10)
        for i in range(300):
            log.append(b"%d" % i) if i % 3 else log.append_many([b"x"] * 5)
        log.append(b"last")
        for each in following:
            assert each.result(timeout=20) == list(range(1, log.end))


def test_a_subscription_ends_when_nothing_comes(ten: Log) -> None:
    assert len(list(ten.subscribe(timeout=0))) == 10
    assert [r.position for r in ten.subscribe(9, timeout=0.01)] == [9, 10]
    assert list(ten.subscribe(11, timeout=0)) == []
    assert [r.position for r in ten.subscribe(key=b"b", timeout=0)] == [2, 4, 6, 8, 10]


def test_a_subscription_may_begin_in_the_future(ten: Log) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: next(ten.subscribe(15)))
        ten.append_many([b"x"] * 10)
        assert first.result(timeout=10).position == 15


def test_a_subscription_that_is_overtaken(ten: Log) -> None:
    ten.trim(5)
    with pytest.raises(TrimmedError) as caught:
        next(ten.subscribe(2))
    assert caught.value.first == 5
    assert next(ten.subscribe()).position == 5
    with pytest.raises(PositionError):
        next(ten.subscribe(0))


@pytest.mark.parametrize("read_only", [False, True])
def test_close_ends_waits_and_subscriptions(
    ten: Log, node: Store, opener: Opener, read_only: bool
) -> None:
    closing = opener(read_only=True) if read_only else node
    log = closing.log("orders")
    caught_up = threading.Semaphore(0)

    def follow() -> int:
        count = 0
        for record in log.subscribe():
            count += 1
            if record.position == 10:
                caught_up.release()
        return count

    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(log.wait, 99) for _ in range(2)]
        following = [pool.submit(follow) for _ in range(2)]
        assert caught_up.acquire(timeout=10)
        assert caught_up.acquire(timeout=10)
        closing.close()
        assert [each.result(timeout=10) for each in waiting] == [False, False]
        assert [each.result(timeout=10) for each in following] == [10, 10]
    assert log.wait(1) is False


def test_close_in_the_middle_of_a_subscription(log: Log, node: Store) -> None:
    log.append_many([b"x"] * 1000)
    following = log.subscribe()
    next(following)
    node.close()
    assert list(following) == []


def test_deleting_ends_waits(ten: Log, node: Store) -> None:
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(ten.wait, 99)
        following = pool.submit(list, ten.subscribe(11))
        node.delete_log("orders")
        for each in (waiting, following):
            with pytest.raises(NotFoundError, match="deleted"):
                each.result(timeout=10)


INTERRUPTED: dict[str, Callable[[Log], object]] = {
    "wait": lambda log: log.wait(99),
    "wait with a deadline": lambda log: log.wait(99, timeout=1000),
    "subscribe": lambda log: list(log.subscribe()),
}


class Interrupted(Exception):
    """What the signal handler raises."""


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("call", INTERRUPTED)
def test_signals_interrupt_waiting(
    ten: Log, opener: Opener, call: str, read_only: bool
) -> None:
    log = opener(read_only=True).log("orders") if read_only else ten

    def handle(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(Interrupted):
            INTERRUPTED[call](log)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert ten.append(b"goes on") == 11


def test_ctrl_c_ends_a_program_that_follows(ten: Log, opener: Opener) -> None:
    # Where tests run in the background, the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt), opener(read_only=True) as follower:
            list(follower.log("orders").subscribe())
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert follower.closed


def test_signals_interrupt_a_long_filter(log: Log) -> None:
    # A filter that nothing passes reads on inside the core.
    log.append_many([b"x" * 100] * 200_000)

    def handle(*_: object) -> None:
        raise Interrupted

    def filter_for_ever() -> None:
        while True:
            next(log.read(key=b"absent"), None)

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        with pytest.raises(Interrupted):
            filter_for_ever()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
