"""The list and the parts of a backup, byte for byte."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from braidlog import _native
from braidlog.backup.layout import (
    Backup,
    BackupCursor,
    BackupLog,
    BackupPart,
    BackupSource,
    BackupStream,
    decode,
    encode,
    list_name,
    owner_of,
    part_name,
)
from braidlog.documents import checksum_of
from braidlog.errors import (
    BackupDamagedError,
    CorruptionError,
    InvalidArgumentError,
    NewerFormatError,
)
from braidlog.testing import MemoryStore

ID = "20261126T140135Z-24adb52b"
SOURCE = BackupSource("directory", "1f" * 16, "/data")
LOG = "2e" * 16


def part(begin: int, end: int) -> BackupPart:
    path = part_name(SOURCE.id, LOG, 1, begin, end, ID)
    return BackupPart(path, begin, end, 100, "ab" * 16, "cd" * 16)


def stream(first: int, end: int, *parts: BackupPart) -> BackupStream:
    return BackupStream(1, first, end, b"\0\0\0\0", parts)


def backup(*logs: BackupLog) -> Backup:
    return Backup(ID, SOURCE, None, 5, "0.1.0", 65536, 1 << 30, 3, 4096, 200, logs, {})


def log(name: str = "orders", *parts: BackupPart) -> BackupLog:
    cursors = (BackupCursor("c", 7, True, 5, 0),)
    parts = parts or (part(1, 10), part(10, 20))
    return BackupLog(LOG, name, 4, "{}", 3, 20, cursors, (stream(3, 20, *parts),))


def test_a_list_comes_back() -> None:
    made = backup(log())
    data = encode(made)
    assert decode(data, "x") == made
    assert (made.records, made.bytes, len(made.parts)) == (17, 200, 2)
    whole = json.loads(data)
    body = json.dumps(whole["backup"], sort_keys=True, separators=(",", ":"))
    assert whole["checksum"] == checksum_of(body.encode())
    assert whole["format"] == 1
    assert list_name(ID) == f"lists/{ID}.json"


def test_what_a_later_build_adds_is_kept() -> None:
    whole = json.loads(encode(backup(log())))
    whole["backup"]["queues"] = [{"name": "stock"}]
    body = json.dumps(whole["backup"], sort_keys=True, separators=(",", ":"))
    whole["checksum"] = checksum_of(body.encode())
    found = decode(json.dumps(whole).encode(), "x")
    assert found.extra == {"queues": [{"name": "stock"}]}


@pytest.mark.parametrize(
    "parts",
    [
        (part(1, 10),),
        (part(10, 20),),
        (part(1, 10), part(11, 20)),
        (part(1, 10), part(9, 20)),
        (part(1, 10), part(10, 20), part(20, 21)),
        (part(1, 3), part(3, 20)),
        (part(3, 10), part(10, 10), part(10, 20)),
        (part(0, 20),),
    ],
)
def test_parts_that_are_not_the_stream_are_refused(
    parts: tuple[BackupPart, ...],
) -> None:
    with pytest.raises(InvalidArgumentError):
        stream(3, 20, *parts)


def test_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="one name"):
        backup(log(), replace(log(), id="3f" * 16))
    with pytest.raises(InvalidArgumentError, match="no list"):
        replace(backup(), id="../x")
    outside = replace(part(1, 20), path="../../etc/passwd")
    with pytest.raises(InvalidArgumentError, match="not the name of a part"):
        backup(log("x", outside))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", 5),
        ("time", "now"),
        ("logs", [{}]),
        ("logs", None),
        ("source", {"kind": "directory"}),
        ("segment_bytes", None),
    ],
)
def test_a_list_with_other_values_is_refused(field: str, value: Any) -> None:
    whole = json.loads(encode(backup(log())))
    whole["backup"][field] = value
    body = json.dumps(whole["backup"], sort_keys=True, separators=(",", ":"))
    whole["checksum"] = checksum_of(body.encode())
    with pytest.raises(BackupDamagedError):
        decode(json.dumps(whole).encode(), "x")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"format":0}', '{"format":"1"}']
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(BackupDamagedError, match="not the list of a backup"):
        decode(text.encode(), "here")
    with pytest.raises(NewerFormatError):
        decode(b'{"format":3}', "here")


def test_names_of_parts_say_whose_they_are() -> None:
    name = part(1, 10).path
    assert owner_of(name) == owner_of(f"{name}.tmp") == ID
    for other in ("parts/notes.txt", name.replace("parts", "part"), f"{name}.old"):
        assert owner_of(other) is None


def test_the_bytes_of_a_part(tmp_path: Path) -> None:
    """By the table in the document, without the package."""
    with MemoryStore() as store:
        orders = store.create_log("orders")
        orders.append_many([b"tea", b"milk"])
        orders.append(b"bread")
        made = store.backup(tmp_path / "place")
        (only,) = made.parts
        data = (tmp_path / "place" / only.path).read_bytes()
        identity = int(orders.id, 16)
    magic, version, low, high, number, _ = struct.unpack_from("<4sIQQII", data)
    assert (magic, version, number) == (b"BRBP", 1, 1)
    assert low | high << 64 == identity
    at, seen = 32, []
    while at < len(data):
        size, count, llsn, glsn = struct.unpack_from("<IIQQ", data, at)
        assert data[at + 24 :][:4] == b"BRB1"
        seen.append((count, llsn, glsn))
        at += 24 + size
    assert at == len(data)
    assert seen == [(2, 1, 1), (1, 3, 3)]
    assert _native.check_part(data) == (identity, 1, 1, 4, 1, 4, 3)
    entries = _native.part_entries(data)
    assert [entry[:3] for entry in entries] == [(1, 1, 2), (3, 3, 1)]
    again = _native.part_header(identity, 1) + b"".join(
        _native.part_entry(llsn, glsn, 0, count, batch)
        for llsn, glsn, count, batch in entries
    )
    assert again == data
    for at in (0, 5, 30, 40, len(data) - 1):
        with pytest.raises(CorruptionError):
            _native.check_part(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
