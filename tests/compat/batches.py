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
    value: bytes
    headers: list[tuple[str, bytes]]


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
    values = numbers(section(1, 4 * (records + 1)), "<I", header["value_bytes"])
    validity = section(nulls, -(-records // 8))
    keys = numbers(section(keyed, 4 * (records + 1)), "<I", header["key_bytes"])
    heads = numbers(section(headed, 4 * (records + 1)), "<I", entries)
    names = numbers(
        section(headed, 4 * (entries + 1)), "<I", header["header_name_bytes"]
    )
    contents = numbers(
        section(headed, 4 * (entries + 1)), "<I", header["header_value_bytes"]
    )
    name_data = section(headed, header["header_name_bytes"])
    content_data = section(headed, header["header_value_bytes"])
    key_data = section(keyed, header["key_bytes"])
    value_data = section(1, header["value_bytes"])
    assert at == len(raw)
    for i in range(records):
        key = None
        if keyed and (not nulls or validity[i // 8] >> i % 8 & 1):
            key = key_data[keys[i] : keys[i + 1]]
        elif keyed:
            assert keys[i] == keys[i + 1]
        yield Record(
            first + i,
            timestamps[i] if timestamps else header["timestamp_min"],
            key,
            value_data[values[i] : values[i + 1]],
            [
                (
                    name_data[names[j] : names[j + 1]].decode(),
                    content_data[contents[j] : contents[j + 1]],
                )
                for j in (range(heads[i], heads[i + 1]) if headed else ())
            ],
        )
