"""Read a node directory by `docs/formats.md` alone: no part of the package is used.

Checks every checksum, ordinal and rule of the document on the way. Slow and simple on
purpose: it is the second opinion on what the native core writes.
"""
# One file: it is a second reader of the formats, and follows their document.

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from compat.batches import Record, rows
from compat.layouts import FORMATS, LAYOUTS, Take, crc32c, table
from compat.samples import check_entry, taken
from compat.tables import Table, change, table_of
from compat.windows import note

BLOCK = 4096
PAGE = 4096

KINDS = {int(row["kind"]): row["name"] for row in table(FORMATS, "kind", "payload")}
TAGS = {int(row["tag"]): row for row in table(FORMATS, "tag", "content")}


def magic(parsed: dict[str, Any]) -> bytes:
    return struct.pack("<I", parsed["magic"])


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


@dataclass
class Frame:
    offset: int
    header: dict[str, Any]
    kind: str
    payload: bytes

    @property
    def end(self) -> int:
        return self.offset + int(self.header["length"])


@dataclass
class Segment:
    number: int
    slot: int
    salt: int
    opened_by: int
    sealed: dict[str, Any] | None = None


@dataclass
class Files:
    """The version that a manifest file gives."""

    slots: dict[int, int] = field(default_factory=dict)
    short: dict[int, int] = field(default_factory=dict)
    nulls: bool = False
    segments: dict[int, Segment] = field(default_factory=dict)
    closed: bool = False
    edits: list[int] = field(default_factory=list)


@dataclass
class Stream:
    """One log as the directory has it."""

    name: str
    options: bytes
    state: dict[str, Any]
    records: dict[int, Record] = field(default_factory=dict)


class Directory:
    """A parsed directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = self._identity()
        self.files = self._manifest()
        self.torn: int | None = None
        self.clean = False
        self.kinds: set[str] = set()
        self.compressions: set[int] = set()
        self.tables: dict[int, Table] = {}
        self.streams = self._streams()
        # An older build would let records go that a table needs.
        assert not self.tables or self.identity["format"] == 3

    # -- small files -------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        data = (self.path / "IDENTITY").read_bytes()
        identity = LAYOUTS.parse("identity", data)
        assert (magic(identity), identity["format"] in (1, 3)) == (b"BRID", True)
        assert identity["checksum"] == crc32c(data[:44])
        return identity

    def watermark(self) -> dict[str, Any]:
        data = (self.path / "WATERMARK").read_bytes()
        mark = LAYOUTS.parse("watermark", data)
        assert (magic(mark), mark["format"]) == (b"BRWM", 2)
        assert mark["checksum"] == crc32c(data[:32])
        return mark

    def checkpoint(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the head and the state, checked against the frames before it."""
        data = (self.path / "CHECKPOINT").read_bytes()
        head = LAYOUTS.head("checkpoint", data)
        assert (magic(head), head["format"]) == (b"BRCP", 1)
        begin = LAYOUTS.size("checkpoint")
        middle = begin + head["state_bytes"]
        end = middle + head["index_bytes"]
        assert head["checksum"] == crc32c(data[: begin - 4], data[begin:end])
        segment = self.files.segments[head["segment"]]
        assert segment.salt == head["salt"]
        frames = [f for f in self.frames(segment) if f.offset < head["offset"]]
        assert len(frames) == head["ordinal"]
        assert (frames[-1].offset, frames[-1].end) == (head["last"], head["offset"])
        side = LAYOUTS.head("side_header", data[middle:end])
        assert (side["segment"], side["salt"]) == (segment.number, segment.salt)
        assert side["sealed_bytes"] == head["offset"]
        left = iter(frames)
        tables, self.tables = self.tables, {}
        streams = self._from_preamble(self._preamble(left))
        for frame in left:
            self._fold(streams, frame)
        folded_tables, self.tables = self.tables, tables
        state = _state(data[begin:middle])
        stored = {each["number"]: each for each in state["streams"]}
        for name in ("low", "next"):
            folded = {number: item.state[name] for number, item in streams.items()}
            assert {number: each[name] for number, each in stored.items()} == folded
        assert folded_tables == {
            each["table"]["table_id"]: table_of(each) for each in state["tables"]
        }
        return head, state

    # -- manifest ----------------------------------------------------------------

    def _manifest(self) -> Files:
        current = (self.path / "CURRENT").read_bytes().decode()
        name, digits = current.rstrip("\n").split(" ")
        assert current == f"{name} {crc32c(name.encode()):08x}\n"
        assert digits == digits.lower()
        data = (self.path / name).read_bytes()
        header = LAYOUTS.head("manifest_header", data)
        assert (magic(header), header["format"], header["kind"]) == (b"BRMF", 1, 1)
        assert header["checksum"] == crc32c(data[:60])
        assert header["object_id"] == self.identity["wal_id"]
        assert header["node_id"] == self.identity["node_id"]
        assert name == f"MANIFEST-{header['file_number']:06}"
        seed = data[8:24] + data[40:48]
        files, at, left = Files(), LAYOUTS.size("manifest_header"), None
        number = header["first_edit"]
        while at < len(data):
            assert not files.closed
            edit = LAYOUTS.head("edit_header", data[at:])
            whole = data[at : at + edit["length"]]
            assert edit["checksum"] == crc32c(seed, whole[:4], whole[8:])
            assert edit["number"] == number
            left = self._edit(files, number, whole[16:], left)
            at += edit["length"]
            number += 1
        assert left == 0
        return files

    def _edit(
        self, files: Files, number: int, fields: bytes, left: int | None
    ) -> int | None:
        files.edits.append(number)
        at, first = 0, True
        while at < len(fields):
            head = LAYOUTS.head("field_header", fields[at:])
            at += LAYOUTS.size("field_header")
            content = fields[at : at + head["length"]]
            at += head["length"]
            row = TAGS[head["tag"]]
            if row["content"] == "none":
                assert not content
                assert first or row["name"] != "close"
                files.closed |= row["name"] == "close"
                files.nulls |= row["name"] == "allow-nulls"
            else:
                operation = LAYOUTS.parse(row["content"].strip("`"), content)
                if row["name"] == "snapshot":
                    assert first
                    assert left is None or operation["left"] == left - 1
                    left = operation["left"]
                else:
                    self._apply(files, number, row["name"], operation)
            first = False
        return left

    def _apply(
        self, files: Files, number: int, name: str, operation: dict[str, Any]
    ) -> None:
        match name:
            case "add-slot":
                files.slots[operation["slot"]] = operation["bytes"]
            case "remove-slot":
                del files.slots[operation["slot"]]
                files.short.pop(operation["slot"], None)
            case "fill-slot":
                slot, size = operation["slot"], operation["bytes"]
                assert files.short.get(slot, 1) <= size <= files.slots[slot]
                files.short[slot] = size
            case "open-segment" | "restore-segment":
                fields = {"opened_by": number} | operation
                assert fields["slot"] in files.slots
                files.segments[operation["number"]] = Segment(**fields)
            case "seal-segment":
                files.segments[operation["number"]].sealed = operation
            case "drop-segment":
                del files.segments[operation["number"]]
            case "set-bound":
                assert operation["bytes"] >= 4 * self.identity["segment_bytes"]
            case "advance":
                assert operation["next_segment"] > max(files.segments, default=0)
                assert operation["next_slot"] > max(files.slots, default=0)
            case _:
                raise AssertionError(name)

    # -- segments ----------------------------------------------------------------

    def _slot(self, segment: Segment) -> bytes:
        data = (self.path / "wal" / f"slot-{segment.slot:06}.wal").read_bytes()
        size = self.identity["segment_bytes"]
        assert self.files.short.get(segment.slot, size) <= len(data) <= size
        data = data.ljust(size, b"\0")
        header = LAYOUTS.head("segment_header", data)
        assert magic(header) == b"BRWS"
        assert header["format"] in (1, 2)
        assert header["checksum"] == crc32c(data[:48])
        assert data[52:BLOCK] == bytes(BLOCK - 52)
        assert header["node_id"] == self.identity["node_id"]
        assert header["number"] == segment.number
        assert header["salt"] == segment.salt
        assert header["segment_bytes"] == len(data)
        return data

    def _frame(self, segment: Segment, data: bytes, at: int, ordinal: int) -> Frame:
        header = LAYOUTS.head("frame_header", data[at:])
        assert header["ordinal"] == ordinal
        size, padding = header["length"], header["padding"]
        assert size % 8 == 0
        assert padding < 8
        assert at + size <= len(data)
        covered = data[at + 8 : at + 48 + header["head"]]
        seed = u64(segment.salt) + u64(segment.number) + struct.pack("<I", at)
        assert header["checksum"] == crc32c(seed, data[at : at + 4], covered)
        assert header["durable"] <= at
        payload = data[at + 48 : at + size - padding]
        assert data[at + size - padding : at + size] == bytes(padding)
        kind = KINDS[header["kind"]]
        if kind not in ("batch", "moved"):
            assert header["head"] == len(payload)
        return Frame(at, header, kind, payload)

    def frames(self, segment: Segment) -> Iterator[Frame]:
        """Yield the frames of a segment up to where the log or the segment ends."""
        data = self._slot(segment)
        limit = segment.sealed["sealed_bytes"] if segment.sealed else len(data)
        at, ordinal = BLOCK, 0
        while at < limit:
            try:
                frame = self._frame(segment, data, at, ordinal)
            except (AssertionError, KeyError):
                aligned = -(-at // BLOCK) * BLOCK
                try:
                    frame = self._frame(segment, data, aligned, ordinal)
                except (AssertionError, KeyError):
                    assert segment.sealed is None
                    self.torn = at
                    return
                assert data[at:aligned] == bytes(aligned - at)
            yield frame
            at, ordinal = frame.end, ordinal + 1
        assert at == limit

    def _preamble(self, frames: Iterator[Frame]) -> dict[str, Any]:
        state = b""
        for frame in frames:
            assert frame.kind == "preamble"
            state += frame.payload
            if not frame.header["flags"] & 1:
                return _state(state)
        raise AssertionError("no preamble")

    def _streams(self) -> dict[int, Stream]:
        """Fold every segment: the newest gives the state, all of them the records."""
        numbers = sorted(self.files.segments)
        newest = self.files.segments[numbers[-1]]
        assert newest.sealed is None
        assert all(self.files.segments[n].sealed for n in numbers[:-1])
        frames = self.frames(newest)
        streams = self._from_preamble(self._preamble(frames))
        for frame in frames:
            self.clean = frame.kind == "close"
            self._fold(streams, frame)
        for number in numbers:
            segment = self.files.segments[number]
            native = self._collect(streams, segment)
            if segment.sealed:
                self._check_side(segment, native)
        for stream in streams.values():
            low, end = stream.state["low"], stream.state["next"]
            kept = {n: r for n, r in stream.records.items() if n >= low}
            assert sorted(kept) == list(range(low, end))
            stream.records = dict(sorted(kept.items()))
        return streams

    def _from_preamble(self, preamble: dict[str, Any]) -> dict[int, Stream]:
        states = {state["number"]: state for state in preamble["streams"]}
        streams = {}
        for log in preamble["logs"]:
            entry = LAYOUTS.parse("catalog_create", log["entry"])
            assert entry["operation"] == 1
            state = states.pop(log["stream"])
            streams[log["stream"]] = self._stream(entry, state)
        assert not states
        for each in preamble["tables"]:
            self.tables[each["table"]["table_id"]] = table_of(each)
        return streams

    def _stream(self, entry: dict[str, Any], state: dict[str, Any]) -> Stream:
        state["log_id"] = entry["log_id"]
        state["created"] = entry["created"]
        state["cursors"] = {cursor["name"]: cursor for cursor in state["cursors"]}
        state["producers"] = {item["id"]: item for item in state["producers"]}
        return Stream(entry["name"], entry["options"], state)

    def _fold(self, streams: dict[int, Stream], frame: Frame) -> None:
        header, payload = frame.header, frame.payload
        stream = streams.get(header["stream"])
        match frame.kind:
            case "batch":
                assert stream
                assert header["llsn"] == stream.state["next"]
                batch = LAYOUTS.head("batch_header", payload)
                note(stream.state["producers"], batch, header)
                stream.state["next"] += header["count"]
            case "trim":
                assert stream
                stream.state["low"] = max(stream.state["low"], header["llsn"])
            case "catalog":
                self._catalog(streams, header["stream"], payload)
            case "cursor":
                assert stream
                self._cursor(stream.state["cursors"], payload)
            case "moved" | "close":
                pass
            case _:
                raise AssertionError(f"{frame.kind} in an embedded log")

    def _catalog(self, streams: dict[int, Stream], number: int, payload: bytes) -> None:
        by_id = {item.state["log_id"]: n for n, item in streams.items()}
        match payload[0]:
            case 1:
                entry = LAYOUTS.parse("catalog_create", payload)
                state = {"low": 1, "next": 1, "cursors": [], "producers": []}
                streams[number] = self._stream(entry, state)
            case 2:
                entry = LAYOUTS.parse("catalog_delete", payload)
                del streams[by_id[entry["log_id"]]]
            case 3:
                entry = LAYOUTS.parse("catalog_options", payload)
                streams[by_id[entry["log_id"]]].options = entry["options"]
            case 5:
                entry = LAYOUTS.parse("catalog_tables", payload)
                assert entry["changes"]
                for each in entry["changes"]:
                    cursors = change(self.tables, each["change"])
                    for log_id, name, cursor in cursors:
                        held = streams[by_id[log_id]].state["cursors"]
                        held.pop(name, None)
                        if cursor is not None:
                            held[name] = cursor
            case other:
                raise AssertionError(other)

    def _cursor(self, cursors: dict[str, Any], payload: bytes) -> None:
        if payload[0] == 1:
            cursor = LAYOUTS.parse("cursor_set", payload)["cursor"]
            cursors[cursor["name"]] = cursor
        else:
            assert payload[0] == 2
            del cursors[LAYOUTS.parse("cursor_delete", payload)["name"]]

    def _collect(
        self, streams: dict[int, Stream], segment: Segment
    ) -> dict[tuple[int, bool], list[Frame]]:
        """Take the records of a segment; newer frames win, moved ones fill in."""
        data: dict[tuple[int, bool], list[Frame]] = {}
        for frame in self.frames(segment):
            self.kinds.add(frame.kind)
            if frame.kind not in ("batch", "moved"):
                continue
            moved = frame.kind == "moved"
            data.setdefault((frame.header["stream"], moved), []).append(frame)
            stream = streams.get(frame.header["stream"])
            records = self._records(frame)
            if stream:
                stream.records.update({r.position: r for r in records})
        return data

    # -- record batches ----------------------------------------------------------

    def _records(self, frame: Frame) -> list[Record]:
        payload, first = frame.payload, frame.header["llsn"]
        header = LAYOUTS.head("batch_header", payload)
        nulls = bool(header["flags"] & (32 | 64))
        assert (magic(header), header["version"]) == (b"BRB1", 2 if nulls else 1)
        assert self.files.nulls or not nulls
        self.compressions.add(header["compression"])
        pages = -(-header["stored_bytes"] // PAGE)
        head = -(-(80 + 4 * pages) // 8) * 8
        assert head == frame.header["head"]
        assert len(payload) == head + header["stored_bytes"]
        assert header["checksum"] == crc32c(payload[:76], payload[80:head])
        assert payload[80 + 4 * pages : head] == bytes(head - 80 - 4 * pages)
        stored = payload[head:]
        for page in range(pages):
            [expected] = struct.unpack_from("<I", payload, 80 + 4 * page)
            assert expected == crc32c(stored[page * PAGE : (page + 1) * PAGE])
        codec = {0: None, 1: "zstd", 2: "lz4"}[header["compression"]]
        raw = stored
        if codec:
            size = header["raw_bytes"]
            raw = pa.Codec(codec).decompress(stored, size, asbytes=True)
            assert len(stored) < len(raw)
        assert len(raw) == header["raw_bytes"]
        records = list(rows(header, raw, first))
        timestamps = [record.timestamp for record in records]
        assert min(timestamps) == header["timestamp_min"]
        assert max(timestamps) == header["timestamp_max"]
        return records[: frame.header["count"]]

    # -- side files --------------------------------------------------------------

    def _check_side(
        self, segment: Segment, data: dict[tuple[int, bool], list[Frame]]
    ) -> None:
        assert segment.sealed
        name = f"{segment.number:012}.idx"
        side = (self.path / "wal" / name).read_bytes()
        assert len(side) == segment.sealed["side_bytes"]
        assert crc32c(side) == segment.sealed["side_checksum"]
        header = LAYOUTS.head("side_header", side)
        assert magic(header) == b"BRIX"
        if header["version"] != 2:
            # As if it were not there: the index is rebuilt from the segment.
            return
        assert (header["segment"], header["salt"]) == (segment.number, segment.salt)
        assert header["sealed_bytes"] == segment.sealed["sealed_bytes"]
        size = LAYOUTS.size("side_entry")
        body = 56 + header["entries_count"] * size
        assert header["head_checksum"] == crc32c(side[:52], side[56:body])
        assert header["body_checksum"] == crc32c(side[body:])
        entries = [
            LAYOUTS.parse("side_entry", side[at : at + size])
            for at in range(56, body, size)
        ]
        keys = [(entry["stream"], entry["lane"]) for entry in entries]
        assert keys == sorted(keys)
        arrays = body + header["samples_bytes"]
        samples, fixed = Take(side[body:arrays]), Take(side[arrays:])
        for layout, count in (
            ("commit_run", header["runs_count"]),
            ("side_cut", header["cuts_count"]),
        ):
            for _ in range(count):
                LAYOUTS.take(layout, fixed)
        assert fixed.at == len(fixed.data)
        lanes = {stream for stream, lane in keys if lane == 0}
        assert lanes == {stream for stream, moved in data if not moved}
        for entry in entries:
            frames = data[entry["stream"], entry["lane"] > 0]
            check_entry(
                entry, taken(entry, samples), [(f.header, f.offset) for f in frames]
            )
        assert samples.at == len(samples.data)


def _state(data: bytes) -> dict[str, Any]:
    """Parse a preamble; only one with tables has anything behind the streams."""
    take = Take(data)
    state = LAYOUTS.take("preamble", take)
    if take.at == len(data):
        return state | {"tables": []}
    rest = LAYOUTS.parse("preamble_tables", data[take.at :])
    assert rest["tables"]
    return state | {"tables": rest["tables"]}
