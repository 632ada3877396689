"""What is asked again, and when, if a quota refuses it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from braidlog.client.connection.link import Answer, Link, Taker
from braidlog.client.connection.links import Links
from braidlog.client.retry import Backoff, Verdict, late, verdict_of
from braidlog.errors import (
    DeadlineError,
    LogError,
    NotReadyError,
    QuotaExceededError,
)
from braidlog.wire.messages import GetMetadata, LogEnd, Message

ANSWER = LogEnd(1, 1), memoryview(b"")


def refusal(retry_after_ms: int) -> QuotaExceededError:
    return QuotaExceededError(
        "used up", quota="bytes_per_s", limit=5, retry_after_ms=retry_after_ms
    )


class Refusing(Link):
    """A link whose other side says what a test wants, one after the other."""

    closed = False

    def __init__(self, says: Callable[[int], LogError | None]) -> None:
        self.asked = 0
        self._says = says

    def request(self, message: Message, payload: bytes = b"") -> asyncio.Future[Answer]:
        self.asked += 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if (error := self._says(self.asked)) is None:
            future.set_result(ANSWER)
        else:
            future.set_exception(error)
        return future

    def send(self, message: Message, payload: bytes, taker: Taker) -> None:
        raise NotImplementedError

    def flush(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def asked(link: Refusing, within: float) -> Answer:
    async def connect(address: str) -> Link:
        return link

    return await Links(connect, 5.0).ask("n1:1", GetMetadata(), within=within)


async def test_what_a_quota_refuses_is_asked_again() -> None:
    link = Refusing(lambda count: refusal(5) if count < 4 else None)
    assert await asked(link, 20.0) == ANSWER
    assert link.asked == 4


async def test_nothing_is_asked_before_the_time_that_was_told() -> None:
    link = Refusing(lambda count: refusal(60_000))
    with pytest.raises(QuotaExceededError) as caught:
        await asked(link, 0.05)
    assert (caught.value.quota, caught.value.retry_after_ms) == ("bytes_per_s", 60_000)
    assert link.asked == 1


async def test_other_errors_are_the_answer() -> None:
    link = Refusing(lambda count: NotReadyError("not yet"))
    with pytest.raises(NotReadyError):
        await asked(link, 20.0)
    assert link.asked == 1


async def test_a_connection_that_a_quota_refuses_is_made_again() -> None:
    tried = 0

    async def connect(address: str) -> Link:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise refusal(5)
        return Refusing(lambda count: None)

    links = Links(connect, 5.0)
    assert await links.ask("n1:1", GetMetadata(), within=20.0) == ANSWER
    assert tried == 3


def test_a_pause_is_never_shorter_than_what_was_told() -> None:
    for told in (1, 50, 5000):
        backoff = Backoff()
        pauses = [backoff.pause_of_quota(refusal(told), share) for share in (0, 0.5, 1)]
        assert min(pauses) >= told / 1000
        assert pauses == sorted(pauses)


def test_the_error_of_a_deadline_says_which_quota_is_why() -> None:
    told = late("too late", refusal(7))
    assert isinstance(told, QuotaExceededError)
    assert (told.message, told.quota, told.limit) == ("too late", "bytes_per_s", 5)
    assert told.outcome == "not_stored"
    assert type(late("too late", NotReadyError("x"))) is DeadlineError
    assert type(late("too late", None)) is DeadlineError
    # The metadata says nothing new of it.
    assert verdict_of(told) is Verdict.AGAIN
