"""What the owner of a shard is told of an append that had to be repeated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.client import ClientSettings
from braidlog.client.append.rows import Rows
from braidlog.client.append.writer import AsyncLogWriter
from braidlog.client.retry import Backoff
from braidlog.errors import ClosedError, ConnectionLostError, FencedError, LogError
from braidlog.wire.messages import Acquired, Appended


class Group:
    """A cluster that answers appends with what it is given."""

    def __init__(self, *answers: object) -> None:
        self.settings = ClientSettings()
        shard = SimpleNamespace(streams=[SimpleNamespace(stream=1)])
        self.routes = SimpleNamespace(log=lambda _: shard)
        self._answers = [*answers]

    def check_open(self) -> None:
        """It is."""

    def backoff(self) -> Backoff:
        return Backoff(0.001, 0.001)

    async def ask_shard(self, *_: object, **__: object) -> tuple[Any, bytes]:
        answer = self._answers.pop(0)
        if isinstance(answer, LogError):
            raise answer
        return answer, b""


def writer(*answers: object) -> AsyncLogWriter:
    cluster: Any = Group(*answers)
    appender: Any = SimpleNamespace(rows=Rows(1000, lambda: 1, lambda: None))
    codec: Any = SimpleNamespace(encode=lambda *_: b"batch")
    granted = Acquired(epoch=1, next=5)
    log = b"l" * 16
    return AsyncLogWriter(cluster, log, "w", granted, appender, codec, "none")


async def test_who_is_refused_at_once_has_appended_nothing() -> None:
    owner = writer(FencedError("it is over"))
    with pytest.raises(FencedError) as refused:
        await owner.append(b"x")
    assert refused.value.outcome == "not_stored"


async def test_who_is_fenced_after_an_attempt_without_an_answer_cannot_know() -> None:
    # The attempt may have been stored before another writer took over.
    owner = writer(ConnectionLostError("broken"), FencedError("it is over"))
    with pytest.raises(FencedError) as refused:
        await owner.append(b"x")
    assert refused.value.outcome == "unknown"
    with pytest.raises(ClosedError, match="acquire"):
        await owner.append(b"y")


async def test_a_repeat_that_is_answered_is_known() -> None:
    owner = writer(ConnectionLostError("broken"), Appended(1, 5, 1, 1))
    assert await owner.append(b"x") == 5
    assert owner.end == 6
