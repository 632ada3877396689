"""A reader made of `docs/formats.md` alone finds every row of a table in its files.

It reads the manifest of each tree, the runs that it lists, the payloads of records, the
keys of indexes and what the table counted, and compares all of it with the API.
"""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import braidlog
from compat.layouts import FORMATS, Layouts, Take, crc32c
from compat.test_runs import Entry, parse

# Of its own: another test looks at what the shared one has met.
LAYOUTS = Layouts.of(FORMATS)

# From the table of fields of trees: which content each has.
FIELDS = {
    16: "begin",
    17: "add-run",
    18: "remove-run",
    19: "add-range",
    20: "remove-range",
    21: "add-slice",
    22: "remove-slice",
    23: "flush",
    24: "floor",
    25: "settle",
    26: "given",
    27: "restore",
}


@dataclass
class Tree:
    """What a manifest says of a tree."""

    header: dict[str, Any]
    runs: dict[int, dict[str, Any]] = field(default_factory=dict)
    ranges: dict[bytes, bytes | None] = field(default_factory=dict)
    slices: dict[tuple[bytes, int], tuple[bytes | None, bytes | None]] = field(
        default_factory=dict
    )
    flushed: int = 0
    seen: set[str] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)


def number(take: Take, width: str = "<Q") -> int:
    found: int
    (found,) = struct.unpack(width, take.take(struct.calcsize(width)))
    return found


def raw(take: Take) -> bytes:
    return take.take(number(take, "<I"))


def bound(take: Take) -> bytes | None:
    kind = number(take, "<B")
    assert kind in (0, 1)
    return raw(take) if kind else None


def read_tree(path: Path) -> Tree:
    current = (path / "CURRENT").read_text()
    name, digits = current.rstrip("\n").split(" ")
    assert digits == f"{crc32c(name.encode()):08x}"
    data = (path / name).read_bytes()
    header = LAYOUTS.head("manifest_header", data)
    assert (header["kind"], header["format"]) == (3, 1)
    assert f"{header['object_id']:032x}" == path.name
    tree, at = Tree(header), LAYOUTS.size("manifest_header")
    seed, edit_number = data[8:24] + data[40:48], header["first_edit"]
    while at < len(data):
        head = LAYOUTS.head("edit_header", data[at:])
        whole = data[at : at + head["length"]]
        assert head["checksum"] == crc32c(seed, whole[:4], whole[8:])
        assert head["number"] == edit_number
        apply(tree, Take(whole[16:]))
        check_version(tree)
        at, edit_number = at + head["length"], edit_number + 1
    listed = {f"{run:06}.run" for run in tree.runs}
    assert {each.name for each in path.glob("*.run*")} == listed
    for run, info in tree.runs.items():
        read_run(path / f"{run:06}.run", tree, info)
    return tree


def apply(tree: Tree, edit: Take) -> None:
    while edit.at < len(edit.data):
        head = LAYOUTS.take("field_header", edit)
        take = Take(edit.take(head["length"]))
        if head["tag"] in (1, 2):
            continue
        kind = FIELDS[head["tag"]]
        tree.seen.add(kind)
        match kind:
            case "begin":
                tree.flushed, tree.ranges = number(take), {b"": None}
            case "add-run":
                span = number(take), number(take)
                info = LAYOUTS.take("run_info", take)
                assert span[0] <= span[1]
                tree.runs[info["number"]] = info
            case "remove-run":
                del tree.runs[number(take)]
            case "add-range":
                tree.ranges[raw(take)] = bound(take)
            case "remove-range":
                del tree.ranges[raw(take)]
            case "add-slice":
                key = raw(take), number(take)
                tree.slices[key] = bound(take), bound(take)
            case "remove-slice":
                key = raw(take), number(take)
                del tree.slices[key]
                raw(take)
            case "flush":
                tree.flushed = number(take)
                what, run = number(take, "<B"), number(take)
                assert (what, run in tree.runs) in {(1, True), (0, False)}
            case "restore":
                tree.flushed = number(take)
                take.take(24)
            case _:
                number(take)
        assert take.at == len(take.data), kind


def check_version(tree: Tree) -> None:
    if not tree.ranges:
        return  # An empty snapshot.
    ends = sorted(tree.ranges.items())
    assert ends[0][0] == b""
    assert ends[-1][1] is None
    assert [end for _, end in ends[:-1]] == [begin for begin, _ in ends[1:]]
    assert {run for _, run in tree.slices} == set(tree.runs)
    assert {begin for begin, _ in tree.slices} <= set(tree.ranges)


def read_run(path: Path, tree: Tree, info: dict[str, Any]) -> None:
    run = parse(path.read_bytes())
    for name in ("entries", "keys", "tombstones", "position_min", "position_max"):
        assert run.footer[name] == info[name], name
    assert info["checksum"] == run.footer["checksum"]
    assert info["bytes"] == path.stat().st_size
    assert (info["first_key"], info["last_key"]) == (run.first_key, run.last_key)
    assert run.footer["tree_id"] == tree.header["object_id"]
    assert run.footer["node_id"] == tree.header["node_id"]
    for key, position, payload in run.entries:
        for (begin, of), (first, last) in tree.slices.items():
            lowest = begin if first is None else first
            highest = tree.ranges[begin] if last is None else last
            inside = lowest <= key and (highest is None or key < highest)
            if of == info["number"] and inside:
                tree.entries.append((key, position, payload))


def newest(entries: list[Entry]) -> dict[bytes, tuple[int, bytes]]:
    """Return the newest version of each key that is no tombstone."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for key, position, payload in sorted(entries, key=lambda entry: entry[1]):
        found[key] = position, payload
    return {key: (at, p) for key, (at, p) in found.items() if p is not None}


def record(payload: bytes) -> tuple[int, bytes | None, list[tuple[str, bytes | None]]]:
    """Return timestamp, value and headers of a record's payload."""
    take = Take(payload)
    timestamp, flags = number(take, "<q"), number(take, "<H")
    count, is_null = flags & 0x7FFF, flags >> 15
    lengths = [(number(take, "<I"), number(take, "<I")) for _ in range(count)]
    headers: list[tuple[str, bytes | None]] = []
    for name, size in lengths:
        text = take.take(name).decode()
        headers.append((text, None if size == 0xFFFFFFFF else take.take(size)))
    value = take.take(len(payload) - take.at)
    assert not (is_null and value)
    return timestamp, None if is_null else value, headers


def read_int(take: Take) -> int:
    first = number(take, "<B")
    if first >= 0x80:
        return int.from_bytes(take.take(first - 0x80), "big")
    size = 0x80 - first
    return -int.from_bytes(bytes(255 - byte for byte in take.take(size)), "big")


def read_text(take: Take) -> str:
    found = bytearray()
    while (byte := take.take(1)) != b"\x00" or take.take(1) == b"\xff":
        found += byte
    return found.decode()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A table with runs, merges, several ranges, and an index that was made later."""
    with braidlog.open(tmp_path / "d", segment_bytes=1 << 20) as store:
        log = store.create_log("log")
        indexes = {"both": "json:/city:text+json:/n:int"}
        table = store.create_table("t", log="log", indexes=indexes, deletes="none")
        for n in range(300):
            city = ["Oslo", "a\x00b", "", "Bergen"][n % 4]
            value = json.dumps({"city": city, "n": (n - 150) * 9**n % 10**12 - n})
            key = b"%03d" % (n * 7 % 200)
            headers = [("h", b"x" * (n % 3)), ("null", None)][: n % 3]
            log.append(value.encode(), key=key, timestamp=n - 9, headers=headers)
            if n in (100, 200):
                table.flush()
        log.append(None, key=b"none", timestamp=1)
        log.append_many([b"1", b"no json"], keys=[None, b"bad"], timestamps=3)
        log.append(b"{}", key=b"k" * 17_000)
        table.flush()
        host = store._table_host()
        native = host.native(host.entry(table.name))._native
        while native.compact():
            pass
        with store.ddl() as change:
            change.create_index("t", "late", "json:/n:int")
        assert table.index("late").wait(timeout=30)
        log.append(b'{"n": 77}', key=b"000", timestamp=5)
        table.flush()
    return tmp_path / "d"


def test_every_row_is_where_the_document_says(written: Path) -> None:
    with braidlog.open(written) as store:
        (entry,) = store._backend.tables()
        table = store.table("t")
        rows = [
            (r.key, r.position, (r.timestamp, r.value, list(r.headers))) for r in table
        ]
        by = {index.name: list(table.index(index.name)) for index in entry.indexes}
        described, first = table.describe(), store.log("log").first
    home = written / "tables" / f"{entry.id:032x}"
    primary = read_tree(home / f"{entry.primary:032x}")
    assert primary.flushed == described.applied
    assert {"restore", "add-run", "add-slice", "add-range"} <= primary.seen
    found = newest(primary.entries)
    assert [(key, at, record(p)) for key, (at, p) in sorted(found.items())] == rows
    positions = {key: at for key, (at, _) in found.items()}
    for index in entry.indexes:
        tree = read_tree(home / f"{index.tree:032x}")
        # The mark of a building; an index from the start has none.
        assert (b"" in newest(tree.entries)) == (index.name == "late")
        values = []
        for key, (at, payload) in newest(tree.entries).items():
            if key == b"":
                mark = Take(payload)
                assert raw(mark) == rows[-1][0]
                assert LAYOUTS.take("refusals", mark)["count"] > 0
                assert mark.at == len(payload)
                continue
            position = struct.unpack("<Q", payload)[0] if payload else at
            take = Take(key)
            text = read_text(take) if index.name == "both" else ""
            value = text.encode(), read_int(take)
            record_key = key[take.at :]
            if positions.get(record_key) == position:
                values.append((value, record_key))
        assert [key for _, key in sorted(values)] == [r.key for r in by[index.name]]
        assert len(values) > 100
    check_counters(home, entry.id, described, first)


def check_counters(home: Path, table: int, described: Any, first: int) -> None:
    data = (home / "COUNTERS").read_bytes()
    counters = LAYOUTS.parse("counters", data)
    assert data[:4] == b"BRTC"
    assert counters["checksum"] == crc32c(data[:-4])
    assert (counters["format"], counters["table_id"]) == (2, table)
    assert counters["records"] == counters["position"] == described.applied
    assert counters["last"] > 0
    listed = [
        counters["without_key"]["first"][0]["position"],
        counters["long_keys"]["first"][0]["position"],
    ]
    assert listed == [302, 304]
    assert counters["lost"]["count"] == 0
    missing = {each["refused"]["count"] for each in counters["of_indexes"]}
    assert missing == {each.missing for each in described.indexes}
