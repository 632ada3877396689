"""What callers give: names, times, options; what is refused changes nothing."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pytest

import braidlog
from braidlog import Log, Store
from braidlog.errors import InvalidArgumentError, NotFoundError, TooLargeError
from braidlog.names import checked_name
from braidlog.store.arguments import checked_timeout
from braidlog.store.catalog import LogOptions
from braidlog.store.retention import lease_us
from braidlog.testing import MemoryStore
from unit.store.conftest import Opener


class Name(str):
    """A name of a class of its own."""

    __slots__ = ()


BAD_NAMES: list[tuple[Any, type[Exception], str]] = [
    ("", InvalidArgumentError, "must not be empty"),
    ("\ud800", InvalidArgumentError, "surrogates"),
    ("x" * 256, TooLargeError, "256 bytes, at most 255 fit"),
    ("é" * 128, TooLargeError, "256 bytes, at most 255 fit"),
    (b"bytes", TypeError, "must be a str"),
    (5, TypeError, "must be a str"),
    (None, TypeError, "must be a str"),
]


@pytest.fixture(params=["disk", "memory"])
def any_node(request: pytest.FixtureRequest, opener: Opener) -> Any:
    """Have a node, and one that stands for it in tests of programs."""
    return opener() if request.param == "disk" else MemoryStore()


@pytest.mark.parametrize(
    ("name", "error", "text"), BAD_NAMES, ids=range(len(BAD_NAMES))
)
def test_names_that_nothing_gets(
    any_node: Any, name: Any, error: type[Exception], text: str
) -> None:
    log = any_node.create_log("log")
    calls: list[Callable[[], object]] = [
        lambda: any_node.create_log(name),
        lambda: any_node.create_log(name, exist_ok=True),
        lambda: log.cursor(name),
        lambda: log.set_cursor(name, 1),
    ]
    for call in calls:
        with pytest.raises(error, match=text) as caught:
            call()
        assert type(caught.value) is error
    assert any_node.logs() == ["log"]
    assert log.cursors() == []


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 256, "other"])
def test_what_has_no_name_like_that_is_not_found(any_node: Any, name: str) -> None:
    for call in (any_node.log, any_node.delete_log):
        with pytest.raises(NotFoundError, match="does not exist"):
            call(name)


def test_a_name_of_a_class_of_its_own(any_node: Any) -> None:
    log = any_node.create_log(Name("ü"))
    log.cursor(Name("c"))
    assert [type(name) for name in any_node.logs()] == [str]
    assert [type(cursor.name) for cursor in log.cursors()] == [str]


def test_the_hint_of_a_name_that_is_too_long_survives() -> None:
    with pytest.raises(TooLargeError) as caught:
        checked_name("x" * 300, "log")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again).endswith(". Choose a shorter name")
    assert (again.size, again.limit) == (300, 255)


SECONDS: list[Any] = [None, 0, -1, True, 1.5, Decimal("0.5"), numpy.float32(1)]
NO_SECONDS: list[Any] = [
    "1",
    b"1",
    [],
    float("nan"),
    Decimal("nan"),
    numpy.datetime64(1, "s"),
]


@pytest.mark.parametrize("timeout", SECONDS, ids=repr)
def test_seconds(timeout: Any) -> None:
    found = checked_timeout(timeout)
    assert found == timeout
    assert found is None or type(found) is float


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 1 << 70])
def test_a_close_may_take_for_ever(opener: Opener, timeout: float) -> None:
    for read_only in (False, True):
        node = opener(read_only=read_only)
        node.close(timeout)
        assert node.closed


@pytest.mark.parametrize("size", [3e6, float("inf"), "1", 1 << 64, -1])
def test_a_size_that_makes_no_sense_provides_nothing(opener: Opener, size: Any) -> None:
    # A low bound: were it taken, this would go on until that is reached.
    node = opener(wal_bytes_max=16 << 20)
    free = node.stats().free_slots
    with pytest.raises((TypeError, InvalidArgumentError)):
        node.provision(size)
    # The thread that keeps house may have made one.
    assert node.stats().free_slots <= free + 1


@pytest.mark.parametrize("timeout", NO_SECONDS, ids=repr)
def test_a_close_that_makes_no_sense_closes_nothing(node: Store, timeout: Any) -> None:
    with pytest.raises((TypeError, InvalidArgumentError)):
        node.close(timeout)
    assert not node.closed
    assert node.create_log("a").append(b"x") == 1


@pytest.mark.parametrize("read_only", [False, True])
def test_a_wait_takes_any_number(ten: Log, opener: Opener, read_only: bool) -> None:
    log = opener(read_only=True).log("orders") if read_only else ten
    for timeout in (Decimal("0.01"), numpy.float32(0.01), numpy.int8(0), False):
        assert not log.wait(11, timeout=timeout)  # type: ignore[arg-type]
        assert log.wait(10, timeout=timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("lease", [7, numpy.uint8(7), Decimal(7), numpy.float32(7)])
def test_a_lease_is_any_number(lease: Any) -> None:
    assert lease_us(lease) == 7_000_000


def test_a_timeout_that_is_larger_than_any_number_of_a_clock(ten: Log) -> None:
    assert ten.wait(10, timeout=10**400)
    assert not ten.wait(11, timeout=-(10**400))
    assert checked_timeout(10**400) == checked_timeout(float("inf"))


@pytest.mark.parametrize("lease", ["7", b"7", []], ids=repr)
def test_a_lease_that_is_no_number(ten: Log, lease: Any) -> None:
    with pytest.raises(TypeError, match="lease must be seconds or a timedelta"):
        ten.cursor("c", lease=lease)
    assert ten.cursors() == []


def test_equal_options_have_one_hash() -> None:
    made = [LogOptions("zstd", 5), LogOptions("zstd", 5), LogOptions("zstd", 6)]
    assert len(set(made)) == 2
    assert len({options.archived_at("here") for options in made}) == 2


class Index:
    """An integer that is no ``int``."""

    def __index__(self) -> int:
        return 8


NUMBERS: list[Any] = [
    *(None, -1, 0, 1, 5, 6, 8, 20, 21, 22, True, False, 1.0, float("nan"), "8", b"8"),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, Index()),
    *(
        numpy.int64(8),
        numpy.uint8(8),
        numpy.float64(8),
        numpy.array([8]),
        [8],
        Decimal(8),
    ),
]


def _positions(records: Any) -> list[int]:
    return [record.position for record in records]


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "get": lambda log, n: log.get(n).position,
    "begin": lambda log, n: _positions(log.read(n)),
    "end": lambda log, n: _positions(log.read(None, n)),
    "limit": lambda log, n: _positions(log.read(limit=n)),
    "since": lambda log, n: _positions(log.read(since=n)),
    "until": lambda log, n: _positions(log.read(until=n)),
    "arrow": lambda log, n: log.to_arrow(n).num_rows,
    "find": lambda log, n: log.find(n),
    "wait": lambda log, n: log.wait(n, timeout=0),
    "subscribe": lambda log, n: _positions(log.subscribe(n, timeout=0)),
    "set_cursor": lambda log, n: repr(log.set_cursor("c", n).position),
    "commit": lambda log, n: (
        log.cursor("d").commit(n),
        repr(log.cursor("d").position),
    ),
    "timestamp": lambda log, n: log[log.append(b"", timestamp=n or 0)].timestamp,
    "timestamps": lambda log, n: [
        log[at].timestamp for at in log.append_many([b""], timestamps=n or 0)
    ],
    "trim": lambda log, n: log.trim(n),
}


def _outcome(call: Callable[[Any, Any], object], log: Any, number: Any) -> object:
    try:
        return call(log, number)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("call", CALLS)
def test_a_log_in_memory_takes_and_refuses_the_same_numbers(
    node: Store, call: str
) -> None:
    logs: list[Any] = [node.create_log("a"), MemoryStore().create_log("a")]
    for log in logs:
        log.append_many([b"%d" % i for i in range(20)], timestamps=range(20))
        log.trim(6)
    for number in NUMBERS:
        ours, theirs = (_outcome(CALLS[call], log, number) for log in logs)
        assert ours == theirs, number


class Interrupted(Exception):
    """What the signal handler raises."""


def test_a_signal_ends_provisioning(tmp_path: Path) -> None:
    room = 64 << 10
    before = signal.signal(
        signal.SIGALRM, lambda *_: (_ for _ in ()).throw(Interrupted)
    )
    try:
        with braidlog.open(tmp_path / "data", segment_bytes=room) as node:
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(Interrupted):
                node.provision(1 << 30)
            made = node.stats().free_slots
            assert made * room < 1 << 30
            # The thread that keeps house may be making one.
            assert node.provision(room * (made + 3)) in {2, 3}
            assert node.provision(room) == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
