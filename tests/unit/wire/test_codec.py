"""Heads of frames: every message comes back; anything else is refused in words."""

from itertools import pairwise
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from braidlog.errors import (
    InvalidArgumentError,
    RemoteProtocolError,
    TooLargeError,
)
from braidlog.wire import commands
from braidlog.wire import messages as m
from braidlog.wire.codec import decode, encode, split
from braidlog.wire.messages import MESSAGES, Message
from unit.wire.examples import CUT, EXAMPLES

PAYLOADS = [(message, memoryview(payload)) for message, payload in EXAMPLES]


def name(value: object) -> str:
    return type(value).__name__


def head(*fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


def refused(message: type[Message], data: bytes, payload: bytes = b"") -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(message.KIND, data, memoryview(payload))
    return caught.value.message


def test_there_is_an_example_of_each_message() -> None:
    assert {type(message) for message, _ in EXAMPLES} == set(MESSAGES.values())
    assert len(MESSAGES) == len(Message.__subclasses__())


@pytest.mark.parametrize(("message", "payload"), PAYLOADS, ids=name)
def test_messages_come_back(message: Message, payload: memoryview) -> None:
    assert decode(message.KIND, encode(message), payload) == message


@pytest.mark.parametrize(("message", "payload"), PAYLOADS, ids=name)
def test_fields_of_a_newer_version_are_passed_over(
    message: Message, payload: memoryview
) -> None:
    fields = [*msgspec.msgpack.decode(encode(message)), "new", [1, {"a": None}]]
    assert decode(message.KIND, head(*fields), payload) == message


@pytest.mark.parametrize(("message", "payload"), PAYLOADS, ids=name)
def test_the_head_ends_where_the_array_ends(
    message: Message, payload: memoryview
) -> None:
    whole = encode(message)
    for damaged in (whole + b"\xc0", whole[:-1]):
        with pytest.raises(RemoteProtocolError):
            decode(message.KIND, damaged, payload)


@pytest.mark.parametrize(("message", "payload"), PAYLOADS, ids=name)
def test_no_field_takes_another_type(message: Message, payload: memoryview) -> None:
    fields = msgspec.msgpack.decode(encode(message))
    hints = get_type_hints(type(message), include_extras=True)
    for number, field in enumerate(type(message).__struct_fields__):
        if type(None) in get_args(hints[field]):
            continue
        damaged = [*fields]
        damaged[number] = None
        with pytest.raises(RemoteProtocolError):
            decode(message.KIND, head(*damaged), payload)


def test_kinds_that_nobody_has_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="kind 255 is unknown"):
        decode(255, b"\x90", memoryview(b""))


@pytest.mark.parametrize("value", [-1, 2**63, 2**64 - 1, 1.5, "1", True])
def test_numbers_are_what_the_core_can_hold(value: object) -> None:
    refused(m.Append, head(value, 1), b"batch")
    refused(m.Commit, head([[bytes(16), value, 1, []]]))


def test_the_identity_of_a_log_has_its_size() -> None:
    refused(m.Commit, head([[bytes(15), 1, 1, []]]))


def test_a_status_is_one_of_those_known() -> None:
    configure = next(e for e, _ in EXAMPLES if isinstance(e, m.Configure))
    fields = msgspec.msgpack.decode(encode(configure))
    fields[1][0][4] = 3
    refused(m.Configure, head(*fields))


def test_arrays_in_arrays_and_broken_text_are_refused() -> None:
    refused(m.Goodbye, b"\x92\xa0" + b"\x91" * 100_000 + b"\xc0")
    refused(m.Goodbye, b"\x91\xa1\xff")
    refused(m.Report, b"\x95\x01\x01\x01\xc3\xdd\xff\xff\xff\xff")


@pytest.mark.parametrize("message", [m.Append(1, 1), m.Execute(), m.Consensus(1)])
def test_what_lives_by_its_payload_has_one(message: Message) -> None:
    assert "no payload" in refused(type(message), encode(message))


def test_the_identity_of_a_command_is_bounded() -> None:
    payload = memoryview(b"command")
    for size, bad in ((0, False), (16, False), (64, False), (65, True)):
        sent = encode(m.Execute(b"x" * size))
        if bad:
            with pytest.raises(RemoteProtocolError, match="identity of 65 bytes"):
                decode(m.Execute.KIND, sent, payload)
        else:
            decode(m.Execute.KIND, sent, payload)


def test_a_payload_is_only_where_one_belongs() -> None:
    assert "4 bytes" in refused(m.Ping, encode(m.Ping()), b"what")


@pytest.mark.parametrize("sizes", [(2, 2), (5, 1), (5, 0), (), (2**62, 5)])
def test_the_sizes_are_those_of_the_payload(sizes: tuple[int, ...]) -> None:
    message = m.Replicate(1, 1, 1, sizes)
    assert "payload of 5" in refused(m.Replicate, encode(message), b"aabbb")


def test_records_have_a_position_for_each_batch() -> None:
    message = m.Records(1, (), (1,), (2, 3), 1, 1, 1)
    refused(m.Records, encode(message), b"aabbb")


def test_the_cuts_of_a_log_rise() -> None:
    refused(m.Commit, encode(m.Commit((CUT, CUT))))


def test_a_handshake_makes_sense() -> None:
    refused(m.Hello, encode(m.Hello(2, 1, "")))
    refused(m.Welcome, encode(m.Welcome(1, "", 1, "read", 100, 101)))


def test_batches_are_views_of_the_payload() -> None:
    payload = memoryview(b"aabbbc")
    parts = split(payload, (2, 3, 1))
    assert [bytes(part) for part in parts] == [b"aa", b"bbb", b"c"]
    assert all(part.obj is payload.obj for part in parts)
    assert split(memoryview(b""), ()) == []


def test_kinds_rise_in_the_order_of_the_file() -> None:
    assert all(a < b < 256 for a, b in pairwise(MESSAGES))


WRONG_FIELDS: dict[str, tuple[Any, type[Exception], str]] = {
    "text": (commands.Seal("1"), TypeError, "stream must be an int, not str"),  # type: ignore[arg-type]
    "flag": (commands.SetVoter(1, 1), TypeError, "voter must be a bool, not int"),  # type: ignore[arg-type]
    "none": (
        commands.AlterLog(b"l", replication="2"),  # type: ignore[arg-type]
        TypeError,
        "replication must be an int or None, not str",
    ),
    "large": (commands.Seal(1 << 70), InvalidArgumentError, "stream = 1180.* 64 bits"),
    "negative": (commands.RegisterNode(-1, "", 1), InvalidArgumentError, ">= 0"),
    "long": (
        commands.CreateLog(b"l", "n" * (2 << 20), 1, 1, 1),
        TooLargeError,
        "bytes, at most",
    ),
}


@pytest.mark.parametrize("case", WRONG_FIELDS)
def test_a_field_that_no_node_would_take_is_named(case: str) -> None:
    command, kind, words = WRONG_FIELDS[case]
    with pytest.raises(kind, match=words):
        commands.encode_checked(command)


def test_a_checked_command_has_the_same_bytes() -> None:
    command = commands.CreateLog(b"l" * 16, "orders", 2, 3, 2, b"\x80", 5)
    assert commands.encode_checked(command) == commands.encode(command)
