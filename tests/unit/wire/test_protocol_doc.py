"""`docs/protocol.md` says what the code does: frames, messages, roles, limits."""

import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import braidlog.wire.connection as rules
from braidlog.wire import messages as m
from braidlog.wire.codec import encode
from braidlog.wire.failures import DETAILS_MAX, TEXT_MAX
from braidlog.wire.messages import MESSAGES, LogId, Number
from braidlog.wire.roles import NEEDED, Role
from braidlog.wire.tables import IndexStatus
from braidlog.wire.tokens import ENTROPY_BYTES, TOKENS_MAX
from compat.layouts import Layouts, crc32c, table
from unit.wire.examples import EXAMPLES
from unit.wire.frames import encode_frame

PROTOCOL = Path(__file__).parents[3] / "docs" / "protocol.md"
WORDS: list[tuple[Any, str]] = [
    (Number, "number"),
    (LogId, "log id"),
    (str, "text"),
    (bytes, "bytes"),
    (bool, "bool"),
    (float, "float"),
    (m.StreamStatus, "number"),
    (m.LogKind, "number"),
    (IndexStatus, "number"),
    (int, "number"),
    (type(None), "nil"),
]


def word(kind: Any) -> str:
    for known, text in WORDS:
        if kind == known:
            return text
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)
        if inner[-1] is Ellipsis:
            return f"[{word(inner[0])}]"
        return f"({', '.join(map(word, inner))})"
    if typing.get_origin(kind) is dict:
        key, value = typing.get_args(kind)
        return f"{{{word(key)}: {word(value)}}}"
    if isinstance(kind, types.UnionType):
        return " or ".join(map(word, typing.get_args(kind)))
    return str(kind.__name__)


def fields(struct: type[msgspec.Struct]) -> str:
    hints = typing.get_type_hints(struct, include_extras=True)
    names = struct.__struct_fields__
    return ", ".join(f"{name} {word(hints[name])}" for name in names) or "none"


def role(message: type[m.Message]) -> str:
    return NEEDED[message].word if message in NEEDED else "any"


def test_every_message_is_in_the_table() -> None:
    rows = table(PROTOCOL, "kind", "message", "fields", "payload", "role")
    said = [(int(row["kind"]), row["message"].strip("`")) for row in rows]
    assert said == [(kind, cls.__name__) for kind, cls in MESSAGES.items()]
    by_name = {cls.__name__: cls for cls in MESSAGES.values()}
    payloads = {type(message): payload for message, payload in EXAMPLES}
    for row in rows:
        cls = by_name[row["message"].strip("`")]
        assert row["fields"] == fields(cls)
        assert row["role"] == role(cls)
        assert (row["payload"] != "none") == bool(payloads[cls])
        if cls in rules.ANSWERS:
            assert row["answer"] == f"`{rules.ANSWERS[cls].__name__}`"


def test_every_value_is_in_the_table() -> None:
    rows = table(PROTOCOL, "value", "its fields")
    values = [c for c in m.Value.__subclasses__() if c is not m.Message]
    said = {row["value"].strip("`"): row["its fields"] for row in rows}
    assert said == {value.__name__: fields(value) for value in values}


@pytest.mark.parametrize(("message", "payload"), EXAMPLES)
def test_frames_are_as_the_layout_says(message: m.Message, payload: bytes) -> None:
    data = encode_frame(message.KIND, 7, encode(message), [payload])
    layouts = Layouts.of(PROTOCOL)
    assert layouts.size("frame_header") == rules.HEADER_BYTES
    header = layouts.head("frame_header", data)
    assert header == {
        "length": len(data) - rules.HEADER_BYTES,
        "checksum": crc32c(data[8:]),
        "kind": message.KIND,
        "flags": 0,
        "reserved": 0,
        "request": 7,
        "head": len(encode(message)),
    }


def test_limits_are_those_of_the_code() -> None:
    rows = table(PROTOCOL, "limit", "default")
    said = {row["limit"].strip("`"): int(row["default"]) for row in rows}
    others = {
        "DETAILS_MAX": DETAILS_MAX,
        "TEXT_MAX": TEXT_MAX,
        "TOKENS_MAX": TOKENS_MAX,
    }
    names = [name for name in said if name not in others]
    assert said == {name: getattr(rules, name) for name in names} | others
    assert len(names) == 6
    assert (rules.VERSION_MIN, rules.VERSION_MAX) == (1, 1)


def test_roles_are_those_of_the_code() -> None:
    rows = table(PROTOCOL, "role", "may")
    assert [row["role"].strip("`") for row in rows] == [each.word for each in Role]
    assert f"{ENTROPY_BYTES} random bytes" in PROTOCOL.read_text()
