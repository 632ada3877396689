"""Records of the command log: their bytes are fixed, their faults are named."""

from __future__ import annotations

import pytest

from braidlog.app.determinism.codec import encode
from braidlog.app.errors import EncodingError
from braidlog.app.execution.entries import (
    AbortEntry,
    CallId,
    Catalog,
    Command,
    Create,
    Effect,
    Entry,
    Host,
    Outcomes,
    key_of,
    pack,
    unpack,
)
from braidlog.errors import CorruptionError, InvalidArgumentError, NewerFormatError

CALL = CallId.make(7, b"r" * 9)

# Stored bytes: a change here is a change of the format.
EXAMPLES: list[tuple[Entry, str]] = [
    (
        Command(CALL, b"s" * 16, "deposit", b"h" * 16, [3], [1, 100]),
        "8801015000000000000007727272727272727272"
        "507373737373737373737373737373737367" + b"deposit".hex() + "50"
        "68686868686868686868686868686868810382011864",
    ),
    (
        Effect(CALL, "p", b"h" * 16, [3], [9], [[]], b"\x01"),
        "890102500000000000000772727272727272727261705068686868686868686868"
        "686868686868810381098180" + "4101",
    ),
    (Outcomes(2, [(5, b"d" * 3)]), "840103028182054364" + "6464"),
    (AbortEntry(5, "slow", 3), "8501080564736c6f7703"),
    (
        Catalog(1, [["p", b"h", "", ["command"]]], ["CREATE"], {}),
        "8601050181846170416860816763" + b"ommand".hex() + "8166435245415445a0",
    ),
    (Host(b"n", 4), "840106416e04"),
    (Create(b"i", "bank", 8, 100), "8601074169646" + "2616e6b081864"),
]


@pytest.mark.parametrize(("entry", "stored"), EXAMPLES, ids=lambda x: str(x)[:12])
def test_the_bytes_of_each_kind(entry: Entry, stored: str) -> None:
    assert pack(entry).hex() == stored
    again = unpack(pack(entry), 1)
    assert type(again) is type(entry)
    assert pack(again) == pack(entry)


def test_a_command_says_which_argument_cannot_be_encoded() -> None:
    with pytest.raises(EncodingError, match=r"argument \[1\]\['x'\]") as caught:
        pack(Command(CALL, b"", "p", b"", None, [1, {"x": {2}}]))
    assert caught.value.path == "[1]['x']"


def test_unknown_kinds_and_formats_are_refused() -> None:
    for value in ([1, 99], [2, 1], [1, 0]):
        with pytest.raises(NewerFormatError, match="record at 12"):
            unpack(encode(value), 12)
    for odd in (7, [], [1, 6, b"n"], "x"):
        with pytest.raises(CorruptionError):
            unpack(encode(odd), 12)


def test_the_key_is_the_partition_if_there_is_one() -> None:
    assert key_of([258]) == b"\0\0\1\2"
    assert key_of([1, 2]) is None
    assert key_of(None) is None


def test_call_ids() -> None:
    assert CALL.issued == 7
    assert CallId.parse(CALL.hex()) == CALL
    for wrong in (b"", b"x" * 15):
        with pytest.raises(InvalidArgumentError):
            CallId(wrong)
    with pytest.raises(InvalidArgumentError):
        CallId.parse("no call")
