"""Seeds, keys and roles of nodes."""

from __future__ import annotations

import json

import msgspec
import pytest

from braidlog.client.connection.routing import (
    RoundRobin,
    Routes,
    parse_seeds,
    stream_index,
)
from braidlog.client.retry import Backoff, Verdict, verdict_of
from braidlog.errors import (
    FencedError,
    InvalidArgumentError,
    LogError,
    LogFullError,
    NotFoundError,
    NotPrimaryError,
    SealedError,
    StoreFailedError,
    UnauthorizedError,
)
from braidlog.wire.messages import (
    LogInfo,
    Metadata,
    NodeInfo,
    Spread,
    StreamInfo,
    StreamStatus,
)

LOG = bytes(16)


def routes(streams: int = 3, sealed: int = 0, **options: int) -> Routes:
    made = tuple(
        StreamInfo(
            number,
            4,
            StreamStatus.SEALED if number == sealed else StreamStatus.RUNNING,
            (1, 2, 3),
            (4,),
            1,
        )
        for number in range(1, streams + 1)
    )
    info = LogInfo(LOG, "log", made, 7, 70, 1, 3, 2, json.dumps(options).encode(), 0)
    nodes = tuple(NodeInfo(n, f"n{n}:1", n != 2, n < 4) for n in range(1, 5))
    return Routes(Metadata(9, 3, "c", nodes, (info,)))


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ("a:1,b:2", ("a:1", "b:2")),
        (" a , a:7400", ("a:7400",)),
        ("[::1]:5,[::1]", ("[::1]:5", "[::1]:7400")),
        (["10.0.0.1"], ("10.0.0.1:7400",)),
    ],
)
def test_seeds(seeds: str | list[str], expected: tuple[str, ...]) -> None:
    assert parse_seeds(seeds) == expected


@pytest.mark.parametrize("seeds", ["", "a:0", "a:70000", "a:x", "a,,b", "a..b:1", []])
def test_no_seeds(seeds: str | list[str]) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_seeds(seeds)


def test_a_seed_is_a_text() -> None:
    with pytest.raises(TypeError, match=r"an address must be a str .* not 5"):
        parse_seeds(["a:1", 5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"addresses must be .*, not int"):
        parse_seeds(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", ["http://127.0.0.1:7400", "tcp://a:7400", "a:7400/"])
def test_a_seed_is_no_url(seed: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match="write host:port, such as 'localhost"
    ):
        parse_seeds(f"b:7400,{seed}")


def test_seeds_are_separated_by_commas() -> None:
    with pytest.raises(InvalidArgumentError, match="write commas between addresses"):
        parse_seeds("a:7400 b:7400")


def test_the_hash_of_keys_is_fixed() -> None:
    """Another hash would move keys to other streams, where they overtake."""
    assert [stream_index(b"key-%d" % i, 8) for i in range(6)] == [4, 2, 0, 6, 5, 3]


def test_keys_stay_when_streams_are_added() -> None:
    before = [routes(3, key_streams=3).stream_of(LOG, b"%d" % i) for i in range(50)]
    after = [routes(5, key_streams=3).stream_of(LOG, b"%d" % i) for i in range(50)]
    assert before == after
    assert set(before) == {1, 2, 3}


def test_a_spread_says_where_keys_and_producers_go() -> None:
    first = routes(5, key_streams=3)
    [info] = first.metadata.logs
    spread = Spread(4, (1, 2, 5), (1, 2, 3), ((4, 70),))
    changed = msgspec.structs.replace(info, spread=spread)
    then = Routes(msgspec.structs.replace(first.metadata, logs=(changed,)))
    assert (first.generation(LOG), then.generation(LOG)) == (0, 4)
    assert then.generation(b"another") == 0
    assert then.key_streams(LOG) == then.running(LOG) == (1, 2, 5)
    assert {then.stream_of(LOG, b"%d" % i) for i in range(50)} == {1, 2, 5}
    for producer in range(1, 50):
        home = first.stream_of(LOG, producer.to_bytes(8, "little"))
        assert first.stream_of_producer(LOG, producer) == home
        assert then.stream_of_producer(LOG, producer) == home
    assert then.removed(LOG) == {4: 70}
    assert first.removed(LOG) == {}


def test_roles() -> None:
    found = routes(sealed=2)
    assert found.running(LOG) == (1, 3)
    assert (found.primary(1), found.primary(2)) == (1, None)
    assert found.readers(1) == (3, 1, 4, 2)
    assert found.anyone() == (3, 1, 4, 2)
    with pytest.raises(NotFoundError):
        found.named("other")
    with pytest.raises(NotFoundError):
        found.stream(9)


def test_taking_turns() -> None:
    turn = RoundRobin()
    seen = []
    for streams in [(1, 2, 5)] * 4 + [(1, 5)] * 2:
        stream = turn.current(streams)
        assert turn.current(streams) == stream
        turn.advance(stream)
        seen.append(stream)
    assert seen == [1, 2, 5, 1, 5, 1]


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (NotPrimaryError(), Verdict.MOVED),
        (SealedError(), Verdict.MOVED),
        (StoreFailedError(), Verdict.MOVED),
        (LogFullError(), Verdict.FINAL),
        (FencedError(), Verdict.FINAL),
        (UnauthorizedError(), Verdict.FINAL),
    ],
)
def test_verdicts(error: LogError, verdict: Verdict) -> None:
    assert verdict_of(error) is verdict


def test_pauses_grow_to_a_bound() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.pause(0.0) for _ in range(5)] == [0.0, 1.0, 2.0, 4.0, 5.0]
    assert backoff.pause(1.0) == 2.5
    backoff.reset()
    assert backoff.pause(0.5) == 0.0
