"""What a log of a cluster and one in memory refuse, as an embedded log does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest

import braidlog
from braidlog.client import Client
from braidlog.testing import MemoryStore
from unit.client.fake import FakeCluster

Call = Callable[[Any], object]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Have a log of each kind with the same three records, the embedded one first."""
    path = tmp_path_factory.mktemp("refused") / "d"
    client = Client(lambda: FakeCluster().client())
    with braidlog.open(path) as node, client:
        found = [each.create_log("log") for each in (node, MemoryStore(), client)]
        for log in found:
            log.append_many([b"a", b"b", b"c"], timestamps=7)
        yield found


SAME: dict[str, Call] = {
    "value str": lambda log: log.append("x"),
    "value int": lambda log: log.append(5),
    "key": lambda log: log.append(b"v", key="x"),
    "headers of a dict": lambda log: log.append(b"v", headers={"a": "1"}),
    "headers of a dict of two letters": lambda log: log.append(
        b"v", headers={"ab": "1"}
    ),
    "headers int": lambda log: log.append(b"v", headers=5),
    "header of three": lambda log: log.append(b"v", headers=[("a", b"1", b"2")]),
    "header value": lambda log: log.append(b"v", headers=[("a", "1")]),
    "header name of half a pair": lambda log: log.append(b"v", headers={"\ud800": b""}),
    "one header name of half a pair": lambda log: log.append_many(
        [b"a", b"b"], headers=[{"a": b""}, {"\udfff": b""}]
    ),
    "timestamp": lambda log: log.append(b"v", timestamp=1.5),
    "timestamp of 71 bits": lambda log: log.append(b"v", timestamp=1 << 70),
    "producer": lambda log: log.append(b"v", producer=(1, 2), sequence=1),
    "values of bytes": lambda log: log.append_many(b"abc"),
    "values of str": lambda log: log.append_many("abc"),
    "one of the values": lambda log: log.append_many([b"a", "b"]),
    "one of the keys": lambda log: log.append_many([b"a", b"b"], keys=[b"x", "k"]),
    "one of the timestamps": lambda log: log.append_many([b"a"], timestamps=["x"]),
    "timestamps": lambda log: log.append_many([b"a"], timestamps="x"),
    "one of the headers": lambda log: log.append_many([b"a"], headers=[{"a": "1"}]),
    "no Arrow data": lambda log: log.append_arrow([1]),
    "position str": lambda log: log["a"],
    "position slice": lambda log: log["a":3],
    "position float": lambda log: log.get(1.0),
    "position None": lambda log: log[None],
    "position below 0": lambda log: log[-9],
    "position -1 by its name": lambda log: log.get(-1),
    "position 0": lambda log: log[0],
    "step": lambda log: log[::2],
    "position of 71 bits": lambda log: log[1 << 70],
    "begin": lambda log: list(log.read("a")),
    "end": lambda log: list(log.read(1, 2.0)),
    "key to read": lambda log: list(log.read(key="k")),
    "since": lambda log: list(log.read(since="k")),
    "until": lambda log: list(log.read(until=1.5)),
    "limit": lambda log: list(log.read(limit=1.5)),
    "limit below 0": lambda log: list(log.read(limit=-1)),
    "begin of a table": lambda log: log.to_arrow("a"),
    "begin to follow": lambda log: next(log.subscribe("a", timeout=0)),
    "key to follow": lambda log: next(log.subscribe(key="a", timeout=0)),
    "timeout to follow": lambda log: next(log.subscribe(timeout="a")),
    "position to wait for": lambda log: log.wait("a", timeout=0),
    "timeout to wait": lambda log: log.wait(1, timeout="a"),
    "time to find": lambda log: log.find(1.5),
    "trim": lambda log: log.trim(1.5),
    "name of a cursor": lambda log: log.cursor(5),
    "empty name of a cursor": lambda log: log.cursor(""),
    "name of a cursor to set": lambda log: log.set_cursor("", 1),
    "position of a cursor": lambda log: log.set_cursor("c", 1.5),
    "position of a cursor beyond the end": lambda log: log.set_cursor("c", 99),
    "position to commit": lambda log: log.cursor("c").commit("a"),
}
# The core says it in other words.
OTHER_WORDS: dict[str, Call] = {
    "header name": lambda log: log.append(b"v", headers=[(b"a", b"1")]),
    "sequence": lambda log: log.append(
        b"v", producer=braidlog.Producer(1), sequence="x"
    ),
    "columns": lambda log: log.to_arrow(columns="value"),
}


def refusal(call: Call, log: Any) -> tuple[type[BaseException], str]:
    with pytest.raises(Exception) as caught:
        call(log)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("what", SAME)
def test_it_is_refused_in_the_same_words(logs: list[Any], what: str) -> None:
    embedded, *others = [refusal(SAME[what], log) for log in logs]
    assert others == [embedded] * len(others)
    assert [len(log) for log in logs] == [3] * len(logs)


@pytest.mark.parametrize("what", OTHER_WORDS)
def test_it_is_refused_with_the_same_class(logs: list[Any], what: str) -> None:
    embedded, *others = [refusal(OTHER_WORDS[what], log)[0] for log in logs]
    assert others == [embedded] * len(others)


def test_integers_of_other_kinds_are_taken(logs: list[Any]) -> None:
    one = numpy.int64(1)
    for log in logs:
        assert log[one].timestamp == 7
        assert len(list(log.read(one, numpy.int64(3), limit=one))) == 1
        assert log.find(numpy.int64(7)) == 1


def test_a_cursor_that_is_refused_is_not_there() -> None:
    with Client(lambda: FakeCluster().client()) as client:
        log = client.create_log("log")
        for call in (SAME["empty name of a cursor"], SAME["name of a cursor"]):
            refusal(call, log)
        assert log.cursors() == []
