"""Parse bytes by the `layout` blocks of a document, and nothing else.

A line of a block is an optional offset, a type, a name and words for people. Types are
the fixed-width integers, `varint`, `bytes`, `text`, the name of another block, and any
of them with `[count]`, where `count` is an earlier field. Knows nothing of the package.
"""

import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_INTEGERS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q", "i64": "<q"}
_LINE = re.compile(r"(?:(\d+)\s+)?(\w+)(?:\[(\w+)\])?\s+(\w+)(?:\s|$)")
_BLOCK = re.compile(r"^```layout (\w+)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Field:
    offset: int | None
    type: str
    count: str | None
    name: str


@dataclass
class Take:
    """Bytes and how many of them were taken."""

    data: bytes
    at: int = 0

    def take(self, length: int) -> bytes:
        assert self.at + length <= len(self.data), "the bytes end too early"
        self.at += length
        return self.data[self.at - length : self.at]


@dataclass
class Layouts:
    """All blocks of one document."""

    blocks: dict[str, list[Field]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, document: Path) -> "Layouts":
        layouts = cls()
        for name, text in _BLOCK.findall(document.read_text()):
            assert name not in layouts.blocks, f"two layouts {name}"
            layouts.blocks[name] = [_field(line) for line in text.splitlines()]
        return layouts

    def size(self, name: str) -> int:
        """Return the length of a block of fixed-width fields."""
        sizes = [self._width(item.type) for item in self.blocks[name]]
        return sum(sizes)

    def _width(self, kind: str) -> int:
        if kind == "u128":
            return 16
        if kind in _INTEGERS:
            return struct.calcsize(_INTEGERS[kind])
        return self.size(kind)

    def parse(self, name: str, data: bytes) -> dict[str, Any]:
        """Parse all of `data`, to its last byte."""
        take = Take(data)
        parsed = self.take(name, take)
        assert take.at == len(data), f"{len(data) - take.at} bytes behind {name}"
        return parsed

    def head(self, name: str, data: bytes) -> dict[str, Any]:
        """Parse the beginning of `data`."""
        return self.take(name, Take(data))

    def take(self, name: str, take: Take) -> dict[str, Any]:
        self.used.add(name)
        begin, parsed = take.at, dict[str, Any]()
        for item in self.blocks[name]:
            if item.offset is not None:
                assert take.at - begin == item.offset, f"{name}.{item.name}: offset"
            if item.count is None:
                parsed[item.name] = self._value(item.type, take)
            else:
                count = parsed[item.count]
                parsed[item.name] = [self._value(item.type, take) for _ in range(count)]
        return parsed

    def _value(self, kind: str, take: Take) -> Any:
        if kind in _INTEGERS:
            raw = take.take(self._width(kind))
            return struct.unpack(_INTEGERS[kind], raw)[0]
        if kind == "u128":
            return int.from_bytes(take.take(16), "little")
        if kind == "varint":
            return self._varint(take)
        if kind in ("bytes", "text"):
            raw = take.take(self._value("u32", take))
            return raw.decode() if kind == "text" else raw
        return self.take(kind, take)

    def _varint(self, take: Take) -> int:
        taken = take.take(1)
        while taken[-1] & 0x80:
            taken += take.take(1)
        assert len(taken) == 1 or taken[-1], "not the shortest form"
        value = sum((byte & 0x7F) << 7 * at for at, byte in enumerate(taken))
        assert value < 1 << 32
        return value


def _field(line: str) -> Field:
    match = _LINE.match(line)
    assert match, f"not a layout line: {line!r}"
    offset, kind, count, name = match.groups()
    return Field(None if offset is None else int(offset), kind, count, name)


def table(document: Path, *columns: str) -> list[dict[str, str]]:
    """Return the rows of the first table of a document that has these columns."""
    rows: list[dict[str, str]] = []
    names: list[str] = []
    for line in document.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            if rows:
                return rows
            names = []
        elif not names:
            names = cells
        elif set(columns) <= set(names) and not set(line) <= set("|-: "):
            rows.append(dict(zip(names, cells, strict=True)))
    assert rows, f"no table with {columns}"
    return rows


def _crc_table() -> list[int]:
    result = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        result.append(value)
    return result


_TABLE = _crc_table()


def crc32c(*parts: bytes) -> int:
    """Return the CRC32C of the parts in a row."""
    value, entries = 0xFFFFFFFF, _TABLE
    for part in parts:
        for byte in part:
            value = value >> 8 ^ entries[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
LAYOUTS = Layouts.of(FORMATS)
