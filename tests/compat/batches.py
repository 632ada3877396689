"""The records of a raw body, by the section table of `docs/formats.md`."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Record:
    position: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def rows(header: dict[str, Any], raw: bytes, first: int) -> Iterator[Record]:
    records, entries, flags = (
        header["records"],
        header["header_entries"],
        header["flags"],
    )
    at = 0

    def section(present: int, size: int) -> bytes:
        nonlocal at
        if not present or not size:
            return b""
        begin = -(-at // 8) * 8
        assert raw[at:begin] == bytes(begin - at)
        at = begin + size
        return raw[begin:at]

    def numbers(data: bytes, kind: str, last: int | None = None) -> list[int]:
        found = [n for (n,) in struct.iter_unpack(kind, data)]
        if last is not None and found:
            assert (found[0], found[-1], found) == (0, last, sorted(found))
        return found

    keyed, nulls, headed = flags & 1, flags & 2, flags & 4
    timestamps = numbers(section(not flags & 8, 8 * records), "<q")
    presence = section(flags & 32, -(-records // 8))
    values = numbers(section(1, 4 * (records + 1)), "<I", header["value_bytes"])
    validity = section(nulls, -(-records // 8))
    keys = numbers(section(keyed, 4 * (records + 1)), "<I", header["key_bytes"])
    heads = numbers(section(headed, 4 * (records + 1)), "<I", entries)
    names = numbers(
        section(headed, 4 * (entries + 1)), "<I", header["header_name_bytes"]
    )
    named = section(flags & 64, -(-entries // 8))
    contents = numbers(
        section(headed, 4 * (entries + 1)), "<I", header["header_value_bytes"]
    )
    name_data = section(headed, header["header_name_bytes"])
    content_data = section(headed, header["header_value_bytes"])
    key_data = section(keyed, header["key_bytes"])
    value_data = section(1, header["value_bytes"])
    assert at == len(raw)

    def part(bits: bytes, at: int, data: bytes, ends: list[int]) -> bytes | None:
        if bits and not bits[at // 8] >> at % 8 & 1:
            assert ends[at] == ends[at + 1]
            return None
        return data[ends[at] : ends[at + 1]]

    for i in range(records):
        yield Record(
            first + i,
            timestamps[i] if timestamps else header["timestamp_min"],
            part(validity, i, key_data, keys) if keyed else None,
            part(presence, i, value_data, values),
            [
                (
                    name_data[names[j] : names[j + 1]].decode(),
                    part(named, j, content_data, contents),
                )
                for j in (range(heads[i], heads[i + 1]) if headed else ())
            ],
        )
