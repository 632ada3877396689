"""The bytes of one frame of each message, which no later version may change.

A new message adds a line; `python tests/unit/wire/test_golden.py` prints what it is.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from braidlog.errors import QuotaExceededError
from braidlog.wire.codec import decode, encode
from braidlog.wire.failures import encode_failure
from braidlog.wire.messages import (
    Append,
    Appended,
    Failed,
    Hello,
    Message,
    Metadata,
    Report,
    ScanRows,
)
from unit.wire.examples import EXAMPLES
from unit.wire.frames import conn, encode_frame, feed

GOLDEN = Path(__file__).with_name("golden.txt")


def line(message: Message, payload: bytes) -> str:
    data = encode_frame(message.KIND, 7, encode(message), [payload])
    return f"{type(message).__name__} {data.hex()}"


def stored() -> dict[str, str]:
    return {text.partition(" ")[0]: text for text in GOLDEN.read_text().splitlines()}


def name(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize(("message", "payload"), EXAMPLES, ids=name)
def test_messages_have_the_bytes_they_had(message: Message, payload: bytes) -> None:
    assert line(message, payload) == stored()[name(message)]


@pytest.mark.parametrize(("message", "payload"), EXAMPLES, ids=name)
def test_the_bytes_are_read_as_they_were(message: Message, payload: bytes) -> None:
    data = bytes.fromhex(stored()[name(message)].partition(" ")[2])
    (frame,) = feed(conn(), data)
    assert decode(frame.kind, frame.head, frame.payload) == message
    assert frame.payload == payload


def golden(kind: type[Message]) -> bytes:
    """Return the frame of an example, which has the number 7."""
    return bytes.fromhex(stored()[kind.__name__].partition(" ")[2])


OF = {type(message): (message, payload) for message, payload in EXAMPLES}


def test_the_core_reads_appends_as_the_codec_does() -> None:
    end = conn()
    end.hot = True
    message, payload = OF[Append]
    assert isinstance(message, Append)
    found, _, cold, *_ = end.feed(golden(Append), 0)
    assert found == [(message.stream, message.epoch, [7], [payload])]
    assert cold is None


def test_the_core_answers_appends_as_the_codec_does() -> None:
    answer, _ = OF[Appended]
    assert isinstance(answer, Appended)
    place = answer.llsn, answer.glsn, answer.count, answer.version
    end = conn()
    end.open(7, Append.KIND, 300)
    assert end.answer_appends([(7, *place)]) == []
    assert b"".join(end.take()) == golden(Appended)
    asks = conn(server=False, last=6)
    asks.hot = True
    assert asks.ask(Append.KIND, encode(OF[Append][0]), [b"batch"]) == 7
    _, (answered,), cold, *_ = asks.feed(golden(Appended), 0)
    assert (answered[0], Appended(*answered[1:])) == (7, answer)
    assert cold is None


def test_a_report_of_nodes_that_know_no_damage_is_read() -> None:
    old = "0d0000008162d1c824000000070000000d00000095010203c39196030209040601"
    (frame,) = feed(conn(), bytes.fromhex(old))
    read = decode(frame.kind, frame.head, frame.payload)
    assert isinstance(read, Report)
    assert (read.streams[0].damaged, read.features) == (False, 0)


def test_metadata_of_nodes_that_do_not_say_who_is_in_sync_is_read() -> None:
    old = (
        "67000000126ae896150000000700000067000000950701a474657374919701ae6c6f6361"
        "6c686f73743a37343030c3c3c2c410000102030405060708090a0b0c0d0e0fc3919ac410"
        "000102030405060708090a0b0c0d0e0fa66f726465727391960302029201029103040928"
        "010201c4016fcf00060a24181e4000"
    )
    (frame,) = feed(conn(), bytes.fromhex(old))
    read = decode(frame.kind, frame.head, frame.payload)
    assert isinstance(read, Metadata)
    ((stream,),) = [log.streams for log in read.logs]
    assert (stream.in_sync, stream.damaged, stream.lacking_ms) == (None, (), 0)
    assert read.nodes[0].silent_ms == 0


def test_reports_and_metadata_of_nodes_that_know_no_tables_are_read() -> None:
    report = "0e0000002117195824000000070000000e00000095010203c39197030209040601c2"
    metadata = (
        "830000002d4f44cd150000000700000083000000950701a474657374919801ae6c6f63"
        "616c686f73743a37343030c3c3c2c410000102030405060708090a0b0c0d0e0fc3cd05"
        "dc919ac410000102030405060708090a0b0c0d0e0fa66f7264657273919b0302029201"
        "0291030491019102cd05dc920203ae6e6f64652032206973206c6f73740928010201c4"
        "016fcf00060a24181e4000"
    )
    for old in (report, metadata):
        (frame,) = feed(conn(), bytes.fromhex(old))
        read = decode(frame.kind, frame.head, frame.payload)
        if isinstance(read, Report):
            assert read.features == 0
        else:
            assert isinstance(read, Metadata)
            assert (read.tables, read.settled) == ((), True)


def test_a_scan_of_clients_that_do_not_number_leases_is_read() -> None:
    old = (
        "36000000e43b9b294100000007000000360000009bc410000102030405060708090a0b"
        "0c0d0e0fc410000102030405060708090a0b0c0d0e0fc40161c0c30acd10002826cd03"
        "e8cd1388"
    )
    (frame,) = feed(conn(), bytes.fromhex(old))
    read = decode(frame.kind, frame.head, frame.payload)
    assert isinstance(read, ScanRows)
    assert (read.lease_ms, read.lease) == (5000, 0)


def test_the_greeting_of_nodes_that_prove_nothing_is_read() -> None:
    old = (
        "2e000000d5281a7d01000000070000002e000000980101a47465737403a6736563726574"
        "aa62726169646c6f672031c410000102030405060708090a0b0c0d0e0f0c"
    )
    (frame,) = feed(conn(), bytes.fromhex(old))
    read = decode(frame.kind, frame.head, frame.payload)
    assert isinstance(read, Hello)
    assert (read.token, read.bound, read.nonce, read.key) == ("secret", 12, b"", b"")


OF_NODES_WITHOUT_FEATURES = {
    "Metadata": (
        "830000002d4f44cd150000000700000083000000950701a474657374919801ae6c6f63616c68"
        "6f73743a37343030c3c3c2c410000102030405060708090a0b0c0d0e0fc3cd05dc919ac41000"
        "0102030405060708090a0b0c0d0e0fa66f7264657273919b03020292010291030491019102cd"
        "05dc920203ae6e6f64652032206973206c6f73740928010201c4016fcf00060a24181e4000"
    ),
    "Report": ("0e0000002117195824000000070000000e00000095010203c39197030209040601c2"),
    "Configure": (
        "370000002bfd943b260000000700000037000000930891dc001003c410000102030405060708"
        "090a0b0c0d0e0fa66f7264657273020192010291030191920101082501c4016f0000009104"
    ),
}


@pytest.mark.parametrize("kind", OF_NODES_WITHOUT_FEATURES)
def test_what_nodes_without_features_say_is_read(kind: str) -> None:
    (frame,) = feed(conn(), bytes.fromhex(OF_NODES_WITHOUT_FEATURES[kind]))
    read = decode(frame.kind, frame.head, frame.payload)
    parts = {"Metadata": "nodes", "Configure": "streams"}
    nested: tuple[Any, ...] = getattr(read, parts.get(kind, ""), (read,))
    assert [each.features for each in nested] == [0]


OF_NODES_THAT_SAY_NOTHING_OF_SYNCS = {
    "Metadata": (
        "00010000c9e6e426150000000700000000010000970701a474657374919901ae6c6f63616c68"
        "6f73743a37343030c3c3c2c410000102030405060708090a0b0c0d0e0fc3cd05dc02919ac410"
        "000102030405060708090a0b0c0d0e0fa66f7264657273919b03020292010291030491019102"
        "cd05dc920203ae6e6f64652032206973206c6f73740928010201c4016fcf00060a24181e4000"
        "919bc410000102030405060708090a0b0c0d0e0fa573746f636bc41000010203040506070809"
        "0a0b0c0d0e0fc410000102030405060708090a0b0c0d0e0f03cf00060a24181e400002c4016f"
        "9195c410000102030405060708090a0b0c0d0e0fa463697479c40a6a736f6e3a2f6369747901"
        "a37768799201029101c2"
    ),
    "Report": (
        "0f0000007f0c5b9124000000070000000f00000096010203c39197030209040601c200"
    ),
}


@pytest.mark.parametrize("kind", OF_NODES_THAT_SAY_NOTHING_OF_SYNCS)
def test_what_nodes_say_that_measure_no_syncs_is_read(kind: str) -> None:
    data = bytes.fromhex(OF_NODES_THAT_SAY_NOTHING_OF_SYNCS[kind])
    (frame,) = feed(conn(), data)
    read = decode(frame.kind, frame.head, frame.payload)
    if isinstance(read, Report):
        assert (read.sync_us, read.usual_us) == (0, 0)
    else:
        assert isinstance(read, Metadata)
        assert [each.slow_ms for each in read.nodes] == [0]


def test_the_refusal_of_a_quota_has_the_bytes_it_had() -> None:
    error = QuotaExceededError(
        "no", quota="requests_per_s", limit=500, retry_after_ms=12
    )
    frame = encode_frame(Failed.KIND, 7, encode(encode_failure(error)), [b""])
    assert frame.hex() == (
        "3b000000203a235806000000070000003b0000009411a26e6f84a470617468a0a571756f"
        "7461ae72657175657374735f7065725f73a56c696d6974cd01f4ae72657472795f616674"
        "65725f6d730cc2"
    )


def test_nothing_was_taken_away() -> None:
    assert list(stored()) == [name(message) for message, _ in EXAMPLES]


if __name__ == "__main__":
    sys.stdout.writelines(line(*example) + "\n" for example in EXAMPLES)
