"""Requests and answers, messages of peers, the window, the end."""

import pytest

from braidlog.errors import (
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
    TooLargeError,
    UnauthorizedError,
)
from braidlog.wire import messages as m
from braidlog.wire.connection import (
    ANSWERS,
    HANDSHAKE_BYTES_MAX,
    ONE_WAY,
    REQUEST_COST_MIN,
)
from braidlog.wire.events import (
    Answered,
    Appends,
    Closing,
    FailedRequest,
    Ponged,
    Received,
    Refused,
    Requested,
)
from braidlog.wire.messages import MESSAGES, Hello, Message
from braidlog.wire.rights import Rights
from braidlog.wire.roles import NEEDED, Role
from unit.wire.examples import EXAMPLES
from unit.wire.frames import encode_frame
from unit.wire.pair import WINDOW, Pair, settings, single, whole
from unit.wire.test_handshake import broken, frame

DONE = m.Appended(1, 1, 1, 1)
OTHERS: set[type[Message]] = {m.Pong, *ANSWERS.values()}
OF: dict[type[Message], tuple[Message, bytes]] = {
    type(message): (message, payload) for message, payload in EXAMPLES
}


def greeted(role: Role = Role.ADMIN) -> Pair:
    return Pair(server=settings(authorize=lambda _: Rights(role))).greet()


def peers() -> Pair:
    return Pair(Hello(1, 1, "", node=2)).greet()


def ask(pair: Pair, message: Message, payload: bytes = b"") -> int:
    number = pair.client.request(message, [payload])
    assert number is not None
    return number


@pytest.mark.parametrize("cut", [whole, single])
def test_requests_are_answered_in_any_order(cut: object) -> None:
    pair = Pair(cut=cut).greet()  # type: ignore[arg-type]
    read = ask(pair, m.Read(3, 1, True, 100, 0))
    command = ask(pair, m.Execute(), b"command")
    assert pair.to_server() == [
        Requested(read, m.Read(3, 1, True, 100, 0), memoryview(b"")),
        Requested(command, m.Execute(), memoryview(b"command")),
    ]
    pair.server.answer(command, m.Executed(9), [b"res", b"ult"])
    pair.server.fail(read, NotReadyError("starting"))
    answered, failed = pair.to_client()
    assert answered == Answered(command, m.Executed(9), memoryview(b"result"))
    assert isinstance(failed, FailedRequest)
    assert failed.request == read
    assert type(failed.error) is NotReadyError
    assert (pair.client.unanswered, pair.server.unanswered) == ((), 0)
    assert (pair.client.used, pair.server.used) == (0, 0)


def test_appends_of_a_read_are_one_event_for_each_stream() -> None:
    pair = greeted()
    numbers = [ask(pair, m.Append(n % 2, 1), b"%d" % n) for n in range(6)]
    even, odd = pair.to_server()
    assert even == Appends(0, 1, numbers[::2], [b"0", b"2", b"4"])
    assert odd == Appends(1, 1, numbers[1::2], [b"1", b"3", b"5"])
    for number in numbers:
        pair.server.answer(number, DONE)
    assert [e.request for e in pair.to_client() if isinstance(e, Answered)] == numbers


def test_an_append_of_a_newer_version_is_an_append() -> None:
    pair = greeted()
    head = b"\x94\x03\x02\xc2\xa3new"
    payload = b"batch"
    data = encode_frame(16, 7, head, [payload])
    assert pair.server.receive(data) == [
        Appends(3, 2, (7,), (memoryview(payload),)),
    ]
    pair.server.answer(7, DONE)


@pytest.mark.parametrize("message", list(ANSWERS))
def test_a_request_is_answered_once_and_by_its_answer(message: type[Message]) -> None:
    pair = peers() if NEEDED[message] is Role.PEER else greeted()
    number = ask(pair, *OF[message])
    pair.to_server()
    for wrong in OTHERS - {ANSWERS[message]}:
        with pytest.raises(LocalProtocolError, match="no answer to"):
            pair.server.answer(number, OF[wrong][0])
    answer, payload = OF[ANSWERS[message]]
    pair.server.answer(number, answer, [payload])
    assert pair.to_client() == [Answered(number, answer, memoryview(payload))]
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.server.answer(number, answer, [payload])
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.server.fail(number, NotReadyError())


def test_a_client_takes_no_other_answers() -> None:
    assert "none is open" in broken(greeted().client, frame(DONE, 1))
    pair = greeted()
    number = ask(pair, m.GetMetadata())
    assert "no answer to GetMetadata" in broken(pair.client, frame(DONE, number))
    unknown = frame(m.Failed(14, "", {}), 5)
    assert "none is open" in broken(greeted().client, unknown)


def test_a_server_takes_only_what_is_for_servers() -> None:
    answers: list[type[Message]] = [*ANSWERS.values(), m.Failed, m.Welcome]
    for answer in answers:
        message, payload = OF[answer]
        broken(greeted().server, frame(message, 1, payload))
    assert "number of a request" in broken(greeted().server, frame(m.GetMetadata()))
    assert "number of a request" in broken(greeted().server, frame(m.Ping(), 1))
    assert "number of a request" in broken(peers().server, frame(m.Commit(()), 1))
    twice = frame(m.GetMetadata(), 1) * 2
    assert "not answered yet" in broken(greeted().server, twice)
    append = frame(m.Append(1, 1), 1, b"batch") * 2
    assert "not answered yet" in broken(greeted().server, append)


def test_a_client_takes_only_what_is_for_clients() -> None:
    broken(greeted().client, frame(m.GetMetadata(), 1))
    append = frame(m.Append(1, 1), 1, b"batch")
    assert "to servers only" in broken(greeted().client, append)
    assert "to peers only" in broken(greeted().client, frame(m.Commit(())))


def test_every_message_has_its_place() -> None:
    common = {
        m.Hello,
        m.Challenge,
        m.Proof,
        m.Welcome,
        m.Goodbye,
        m.Ping,
        m.Pong,
        m.Failed,
    }
    every = common | set(ANSWERS) | set(ANSWERS.values()) | ONE_WAY
    assert every == set(MESSAGES.values())
    assert set(NEEDED) == set(ANSWERS) | ONE_WAY


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("message", list(ANSWERS))
def test_what_the_role_does_not_allow_fails_and_nothing_else(
    message: type[Message], role: Role
) -> None:
    # Nobody has the role of a peer but a node.
    pair = peers() if role is Role.PEER else greeted(role)
    number = ask(pair, *OF[message])
    events = pair.to_server()
    if role >= NEEDED[message]:
        assert len(events) == 1
        return
    assert events == []
    (failed,) = pair.to_client()
    assert isinstance(failed, FailedRequest)
    assert failed.request == number
    assert type(failed.error) is UnauthorizedError
    assert not pair.server.closed


def one_way() -> list[type[Message]]:
    """In the same order in every process that collects the tests."""

    def name(kind: type[Message]) -> str:
        return kind.__name__

    return sorted(ONE_WAY, key=name)


@pytest.mark.parametrize("message", one_way())
def test_peers_talk_in_both_directions(message: type[Message]) -> None:
    pair = peers()
    value, payload = OF[message]
    pair.client.send(value, [payload])
    pair.server.send(value, [payload])
    assert pair.to_server() == [Received(value, memoryview(payload))]
    assert pair.to_client() == [Received(value, memoryview(payload))]


@pytest.mark.parametrize("message", one_way())
def test_nobody_else_says_what_peers_say(message: type[Message]) -> None:
    pair = greeted()
    value, payload = OF[message]
    pair.client.send(value, [payload])
    assert pair.to_server() == []
    (refused,) = pair.to_client()
    assert isinstance(refused, Refused)
    assert type(refused.error) is UnauthorizedError
    assert not pair.server.closed


def test_pings_are_answered_by_both() -> None:
    pair = greeted()
    pair.client.ping(1.5)
    pair.server.ping(2.5)
    assert pair.to_server() == []
    assert pair.to_client() == [Ponged(1.5)]
    assert pair.to_server() == [Ponged(2.5)]


def test_what_is_against_the_rules_is_not_sent() -> None:
    pair = Pair()
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.client.request(m.GetMetadata())
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.server.ping(0)
    pair.greet()
    with pytest.raises(LocalProtocolError, match="not a request"):
        pair.client.request(m.Ping())
    with pytest.raises(LocalProtocolError, match="not sent like this"):
        pair.client.send(m.GetMetadata())
    assert pair.client.outgoing() == []


# --- the window --------------------------------------------------------------


def test_a_full_window_waits_for_an_answer() -> None:
    pair = greeted()
    batch = bytes(HANDSHAKE_BYTES_MAX - 100)
    first, second = ask(pair, m.Append(1, 1), batch), ask(pair, m.Append(1, 1), batch)
    before = (pair.client.used, pair.client.unanswered)
    assert pair.client.request(m.Append(1, 1), [batch]) is None
    assert (pair.client.used, pair.client.unanswered) == before
    pair.to_server()
    pair.server.answer(first, DONE)
    assert pair.client.request(m.Append(1, 1), [batch]) is None
    pair.to_client()
    assert pair.client.request(m.Append(1, 1), [batch]) is not None
    assert second in pair.client.unanswered
    pair.to_server()
    assert pair.server.used == pair.client.used <= WINDOW


def test_small_requests_are_bounded_in_number() -> None:
    pair = greeted()
    count = 0
    while pair.client.request(m.GetMetadata()) is not None:
        count += 1
    assert count == WINDOW // REQUEST_COST_MIN
    assert len(pair.to_server()) == count


def test_more_than_the_window_breaks_a_rule() -> None:
    pair = greeted()
    while pair.client.request(m.GetMetadata()) is not None:
        pass
    pair.to_server()
    number = 1 + max(pair.client.unanswered)
    assert "the window is" in broken(pair.server, frame(m.GetMetadata(), number))


def test_what_fits_no_frame_is_refused_before_anything_else() -> None:
    pair = greeted()
    batch = bytes(HANDSHAKE_BYTES_MAX - 24)
    ask(pair, m.Append(1, 1), batch)
    with pytest.raises(TooLargeError) as caught:
        pair.client.request(m.Append(1, 1), [batch, b"x"])
    assert (caught.value.size, caught.value.limit) == (65537, 65536)
    (appends,) = pair.to_server()
    assert isinstance(appends, Appends)
    read = ask(pair, m.GetMetadata())
    pair.to_server()
    with pytest.raises(TooLargeError):
        pair.server.answer(read, OF[m.Metadata][0], [bytes(HANDSHAKE_BYTES_MAX)])
    pair.server.fail(read, TooLargeError("metadata"))
    assert len(pair.to_client()) == 1


def test_numbers_begin_again() -> None:
    pair = Pair(last=2**32 - 2).greet()
    assert [ask(pair, m.GetMetadata()) for _ in range(3)] == [2**32 - 1, 1, 2]


# --- the end -----------------------------------------------------------------


def test_a_server_answers_what_is_open_and_then_says_goodbye() -> None:
    pair = greeted()
    number = ask(pair, m.GetMetadata())
    pair.client.goodbye("done")
    request, closing = pair.to_server()
    assert (type(request), closing) == (Requested, Closing("done"))
    assert pair.server.unanswered == 1
    pair.server.answer(number, OF[m.Metadata][0])
    assert pair.server.closed
    answered, end = pair.to_client()
    assert (type(answered), end) == (Answered, Closing(""))
    assert pair.client.closed


def test_an_idle_server_says_goodbye_at_once() -> None:
    pair = greeted()
    pair.client.goodbye()
    pair.to_server()
    assert pair.server.closed
    pair.to_client()
    assert pair.client.closed


def test_nothing_follows_a_goodbye() -> None:
    pair = greeted()
    ask(pair, m.GetMetadata())
    pair.client.goodbye()
    with pytest.raises(LocalProtocolError, match="not open"):
        pair.client.request(m.GetMetadata())
    pair.to_server()
    assert "after the Goodbye" in broken(pair.server, frame(m.Ping()))


def test_a_server_that_stops_leaves_requests_unanswered() -> None:
    pair = greeted()
    number = ask(pair, m.GetMetadata())
    pair.to_server()
    pair.server.goodbye("draining")
    assert pair.server.closed
    pair.server.answer(number, OF[m.Metadata][0])
    pair.server.fail(number, NotReadyError())
    late = pair.client.request(m.GetMetadata())
    assert pair.to_server() == []
    assert pair.to_client() == [Closing("draining", (number, late))]  # type: ignore[arg-type]
    assert pair.client.closed


def test_who_breaks_a_rule_is_told_which() -> None:
    pair = greeted()
    reason = broken(pair.server, frame(m.GetMetadata()))
    refused, closing = pair.to_client()
    assert isinstance(refused, Refused)
    assert type(refused.error) is RemoteProtocolError
    assert refused.error.message == reason
    assert closing == Closing(reason)
    other = greeted()
    reason = broken(other.client, frame(DONE, 1))
    assert other.to_server() == [Closing(reason)]
