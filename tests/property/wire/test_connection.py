"""Two connections against a dumb model, and one connection against everything."""

import contextlib
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from braidlog.errors import LogError, NotReadyError, RemoteProtocolError
from braidlog.wire import messages as m
from braidlog.wire.client import ClientConnection
from braidlog.wire.codec import encode
from braidlog.wire.connection import ANSWERS, Connection
from braidlog.wire.events import (
    Answered,
    Appends,
    Closing,
    Event,
    FailedRequest,
    Requested,
)
from braidlog.wire.messages import Hello
from braidlog.wire.server import ServerConnection
from unit.wire.examples import EXAMPLES
from unit.wire.frames import encode_frame
from unit.wire.pair import WINDOW, Pair, settings, written

OF = {type(message): (message, payload) for message, payload in EXAMPLES}


class Run:
    """Random calls of a pair; every request is followed from both ends."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pair = Pair(cut=self.cut).greet()
        self.sent: dict[int, bytes] = {}
        self.asked: dict[int, type[m.Message]] = {}
        self.order: list[bytes] = []
        self.blocked = 0

    def cut(self, data: bytes) -> Iterator[bytes]:
        while data:
            end = self.random.choice([1, 7, 40, 5000, len(data)])
            yield data[:end]
            data = data[end:]

    def ask(self) -> None:
        message, _ = OF[self.random.choice(list(ANSWERS))]
        payload = b""
        if isinstance(message, m.Append | m.AppendTo | m.Execute | m.Call):
            size = self.random.choice([8, 100, 40_000])
            payload = self.random.randbytes(size)
        number = self.pair.client.request(message, [payload])
        if number is None:
            self.blocked += 1
            assert self.pair.client.used > 0
            return
        assert number not in self.sent
        self.sent[number] = payload

    def serve(self) -> None:
        for event in self.pair.to_server():
            if isinstance(event, Appends):
                pairs = zip(event.requests, event.payloads, strict=True)
                for request, payload in pairs:
                    self.take(request, m.Append, payload)
            elif isinstance(event, Requested):
                self.take(event.request, type(event.message), event.payload)

    def take(
        self, request: int, message: type[m.Message], payload: bytes | memoryview
    ) -> None:
        assert bytes(payload) == self.sent[request]
        assert request not in self.asked
        self.asked[request] = message

    def answer(self) -> None:
        if not self.asked:
            return
        request = self.random.choice(list(self.asked))
        message = self.asked.pop(request)
        if self.random.random() < 0.2:
            self.pair.server.fail(request, NotReadyError(f"{request}"))
            return
        answer, payload = OF[ANSWERS[message]]
        self.pair.server.answer(request, answer, [payload])

    def collect(self) -> None:
        for event in self.pair.to_client():
            assert isinstance(event, Answered | FailedRequest)
            del self.sent[event.request]

    def step(self) -> None:
        acts = [self.ask, self.ask, self.ask, self.serve, self.answer, self.collect]
        self.random.choice(acts)()
        client, server = self.pair.client, self.pair.server
        assert server.used <= client.used <= WINDOW
        assert set(client.unanswered) == set(self.sent)
        assert server.unanswered == len(self.asked)

    def finish(self) -> None:
        self.pair.client.goodbye()
        self.serve()
        while self.asked:
            self.answer()
        events = self.pair.to_client()
        assert len(events) == len(self.sent) + 1
        assert events[-1] == Closing("")
        assert (self.pair.client.closed, self.pair.server.closed) == (True, True)


@pytest.mark.parametrize("seed", range(6))
def test_every_request_is_answered_once_within_the_window(seed: int) -> None:
    run = Run(seed)
    for _ in range(400):
        run.step()
    run.finish()
    assert run.blocked > 0


def opened(side: str) -> Connection:
    """Return one end of a connection that was greeted, with requests open."""
    pair = Pair(Hello(1, 1, "test", node=2)).greet()
    for message in ANSWERS:
        value, payload = OF[message]
        pair.client.request(value, [payload])
    pair.to_server()
    connection: Connection = pair.client if side == "client" else pair.server
    connection.outgoing()
    return connection


def fresh(side: str) -> Connection:
    if side == "client":
        return ClientConnection(Hello(1, 1, "test"))
    return ServerConnection(settings())


def judged(connection: Connection, pieces: list[bytes]) -> list[Event]:
    """Feed all; whatever happens, the rules of the end hold."""
    events: list[Event] = []
    for piece in pieces:
        with contextlib.suppress(RemoteProtocolError):
            events += connection.receive(piece)
        assert isinstance(written(connection), bytes)
    if connection.error:
        assert connection.closed
        assert connection.receive(b"more") == []
        assert connection.outgoing() == []
    return events


heads = st.sampled_from([encode(message) for message, _ in EXAMPLES])
damaged = st.builds(
    lambda head, at, byte: head[: at % len(head)] + byte + head[at % len(head) + 1 :],
    heads,
    st.integers(0, 200),
    st.binary(min_size=0, max_size=2),
)
sealed = st.builds(
    lambda kind, request, head, payload: encode_frame(
        kind, request, head or b"\x90", [payload]
    ),
    st.sampled_from([message.KIND for message, _ in EXAMPLES]) | st.integers(1, 255),
    st.integers(0, 8),
    heads | damaged | st.binary(min_size=1, max_size=40),
    st.sampled_from([b"", b"aabbb", b"batch"]) | st.binary(max_size=20),
)
valid = st.sampled_from(EXAMPLES).flatmap(
    lambda example: st.integers(0, 6).map(
        lambda request: encode_frame(
            example[0].KIND, request, encode(example[0]), [example[1]]
        )
    )
)
inputs = st.lists(valid | sealed | st.binary(max_size=30), max_size=6)
sides = st.sampled_from(["client", "server"])


@hypothesis_settings(deadline=None)
@given(sides, st.booleans(), inputs)
def test_no_input_does_more_than_break_a_rule(
    side: str, greeted: bool, pieces: list[bytes]
) -> None:
    judged(opened(side) if greeted else fresh(side), pieces)


@hypothesis_settings(deadline=None)
@given(sides, inputs)
def test_where_the_bytes_are_cut_makes_no_difference(
    side: str, frames: list[bytes]
) -> None:
    one, other = opened(side), opened(side)
    data = b"".join(frames)
    events = judged(one, [data[at : at + 1] for at in range(len(data))])
    others = judged(other, frames)
    assert (one.closed, one.state) == (other.closed, other.state)
    assert [seen(e) for e in events[: len(others)]] == [seen(e) for e in others]
    reasons = [c.error.message if c.error else "" for c in (one, other)]
    assert reasons[0] == reasons[1]


def seen(event: Event) -> object:
    """Make events comparable: errors and floats that are no number are not."""
    error: LogError | None = getattr(event, "error", None)
    if error is not None:
        return type(event), type(error), str(error)
    if isinstance(event, Appends):
        return event.stream, event.epoch, [bytes(p) for p in event.payloads]
    return repr(type(event)), getattr(event, "request", None)
