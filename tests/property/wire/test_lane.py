"""One end of a connection in the core against its model: any calls, any bytes."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog._native import Conn
from braidlog.errors import RemoteProtocolError
from property.wire import model
from property.wire.lane import Lane, Refused, encode_number

LIMIT, WINDOW = 700, 2000

numbers = st.sampled_from([0, 1, 2, 3, 4, 5, 2**32 - 1])
places = st.integers(0, 300) | st.sampled_from([2**16, 2**32, 2**63 - 1])
append_heads = st.builds(
    lambda stream, epoch, end: bytes([0x92 + len(end), stream, epoch]) + end,
    st.integers(0, 2),
    st.integers(0, 1),
    st.sampled_from([b"", b"", b"\xc2", b"\xc3", b"\x00"]),
)
appended_heads = st.lists(places, min_size=3, max_size=5).map(
    lambda values: bytes([0x90 + len(values)]) + b"".join(map(encode_number, values))
)
heads = append_heads | appended_heads | st.binary(min_size=1, max_size=12)
kinds = st.sampled_from([16, 16, 17, 17, 18, 4])
payloads = st.sampled_from([b"", b"", b"batch", bytes(400)]) | st.binary(max_size=30)
frames = st.builds(model.encode, kinds, numbers, heads, payloads)
pieces = st.lists(frames | frames | st.binary(max_size=25), max_size=5).map(b"".join)

Act = tuple[str, tuple[Any, ...]]
acts = st.one_of(
    st.tuples(st.just("feed"), st.tuples(pieces)),
    st.tuples(st.just("feed"), st.tuples(pieces)),
    st.tuples(st.just("open"), st.tuples(numbers, kinds, st.integers(0, 900))),
    st.tuples(st.just("ask"), st.tuples(kinds, heads, payloads)),
    st.tuples(st.just("ask"), st.tuples(st.just(16), heads, payloads)),
    st.tuples(st.just("queue"), st.tuples(kinds, numbers, heads, payloads)),
    st.tuples(st.just("answer"), st.tuples(numbers, kinds, heads, payloads)),
    st.tuples(st.just("place"), st.tuples(numbers, st.tuples(*[places] * 4))),
    st.tuples(st.just("settle"), st.tuples(numbers)),
    st.tuples(st.just("hot"), st.tuples(st.booleans())),
    st.tuples(st.just("clear"), st.just(())),
)


class Both:
    """The core and the model, which get the same calls."""

    def __init__(self, *, server: bool, last: int) -> None:
        self.core = Conn(
            server=server,
            window=WINDOW,
            incoming_bytes_max=LIMIT,
            frame_bytes_max=LIMIT,
            last=last,
        )
        self.model = Lane(server=server, window=WINDOW, limit=LIMIT, last=last)
        self.do_hot(True)

    def compare(self) -> None:
        core, lane = self.core, self.model
        assert core.used == lane.used <= WINDOW
        assert core.open_numbers == lane.numbers()
        assert core.open_count == len(lane.open)
        assert [core.kind(n) for n in lane.numbers()] == [k for _, k, _ in lane.open]
        if not lane.failed:
            assert core.buffered == len(lane.kept)
        assert core.queued_bytes == len(lane.written)
        assert b"".join(core.take()) == lane.written
        lane.written = b""

    def do_feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            ours = _tried(partial(self.core.feed, data, at))
            theirs = _tried(partial(self.model.feed, data, at))
            assert (ours and ours[:4]) == theirs
            self.compare()
            if ours is None:
                return
            assert at < ours[3]
            at = ours[3]

    def do_open(self, number: int, kind: int, size: int) -> None:
        assert self.core.open(number, kind, size) == self.model.begin(
            number, kind, size
        )

    def do_ask(self, kind: int, head: bytes, payload: bytes) -> None:
        asked = self.core.ask(kind, head, [payload[:2], payload[2:]])
        assert asked == self.model.ask(kind, head, payload)

    def do_queue(self, kind: int, number: int, head: bytes, payload: bytes) -> None:
        queued = self.core.queue(kind, number, head, [payload])
        assert queued == self.model.queue(kind, number, head, payload)

    def do_answer(self, number: int, kind: int, head: bytes, payload: bytes) -> None:
        answered = self.core.answer(number, kind, head, [payload])
        assert answered == self.model.answer(number, kind, head, payload)

    def do_place(self, number: int, at: tuple[int, int, int, int]) -> None:
        others = self.core.answer_appends([(number, *at)])
        assert others == ([] if self.model.answer_append(number, at) else [number])

    def do_settle(self, number: int) -> None:
        assert self.core.settle(number) == self.model.settle(number)

    def do_hot(self, hot: bool) -> None:
        self.core.hot = self.model.hot = hot

    def do_clear(self) -> None:
        self.core.clear()
        self.model.open = []


def _tried(feed: Callable[[], Any]) -> tuple[Any, ...] | None:
    try:
        return tuple(feed())
    except (RemoteProtocolError, Refused):
        return None


@settings(deadline=None, max_examples=300)
@given(st.booleans(), st.sampled_from([0, 2**32 - 3]), st.lists(acts, max_size=25))
def test_the_core_does_as_the_model(server: bool, last: int, script: list[Act]) -> None:
    both = Both(server=server, last=last)
    for name, given_ in script:
        getattr(both, f"do_{name}")(*given_)
        both.compare()
