"""A reader made of `docs/formats.md` alone agrees with ours on every byte."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.store import inspect
from compat import workload
from compat.directory import KINDS, Directory
from compat.layouts import FORMATS, LAYOUTS, crc32c

# Documented for what comes after one stream on one node; no embedded log writes them.
NOT_YET_WRITTEN = {
    "backup_entry",
    "backup_part",
    "base",
    "bases",
    "catalog_restart",
    "commit_run",
    "counters",
    "epoch_begin",
    "fault_digest",
    "fault_record",
    "fault_rescue",
    "group_entry_key",
    "index_counters",
    "manifest_remove_slot",
    "moved_runs",
    "order",
    "refusal",
    "refusals",
    "rescued",
    "run_footer",
    "run_index",
    "run_info",
    "run_page",
    "side_cut",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return directories: closed in order, as after a crash, and reopened once."""
    base = tmp_path_factory.mktemp("formats")
    paths = {name: base / name for name in ("closed", "crashed", "reopened")}
    workload.write(paths["closed"], crashed=paths["crashed"])
    workload.write(paths["reopened"])
    with braidlog.open(paths["reopened"]) as node:
        # Nothing is written before a change.
        node.create_log("last")
    paths["tables"] = base / "tables"
    workload.write_tables(paths["tables"], crashed=base / "crashed tables")
    paths["crashed tables"] = base / "crashed tables"
    # With segments of the default length, of which the first file has not all yet.
    paths["short"] = base / "short"
    with braidlog.open(paths["short"]) as node:
        node.create_log("orders").append_many([b"%d" % n for n in range(40)])
    paths["nulls"] = base / "nulls"
    workload.write_nulls(paths["nulls"])
    return paths


@pytest.fixture(params=["closed", "crashed", "reopened", "nulls"])
def path(request: pytest.FixtureRequest, written: dict[str, Path]) -> Path:
    return written[request.param]


def test_the_checksum_is_the_one_of_the_document() -> None:
    # The check value of CRC-32/ISCSI.
    assert crc32c(b"123456789") == crc32c(b"1234", b"56789") == 0xE3069283


def test_every_record_is_where_the_document_says(path: Path) -> None:
    parsed = Directory(path)
    with braidlog.open(path, read_only=True) as node:
        assert sorted(s.name for s in parsed.streams.values()) == node.logs()
        for stream in parsed.streams.values():
            log = node.log(stream.name)
            assert (stream.state["low"], stream.state["next"]) == (log.first, log.end)
            read = [
                (r.position, r.timestamp, r.key, r.value, list(r.headers))
                for r in log.read()
            ]
            assert read == [
                (r.position, r.timestamp, r.key, r.value, r.headers)
                for r in stream.records.values()
            ]


def test_catalog_and_cursors_are_where_the_document_says(path: Path) -> None:
    parsed = Directory(path)
    with braidlog.open(path, read_only=True) as node:
        for stream in parsed.streams.values():
            log = node.log(stream.name)
            described = log.describe()
            assert log.id == f"{stream.state['log_id']:032x}"
            assert described.created == stream.state["created"]
            assert described.stream == next(
                n for n, s in parsed.streams.items() if s is stream
            )
            options = json.loads(stream.options)
            assert options == {
                name: getattr(described, name)
                for name in ("compression", "retention_ms", "retention_bytes")
            }
            cursors = {
                cursor["name"]: (
                    cursor["position"],
                    bool(cursor["pin"]),
                    cursor["lease"],
                )
                for cursor in stream.state["cursors"].values()
            }
            assert cursors == {
                c.name: (c.position, c.pin, int((c.lease or 0) * 1_000_000))
                for c in log.cursors()
            }


@pytest.mark.parametrize("name", ["closed", "crashed", "reopened"])
def test_producer_windows_are_where_the_document_says(
    name: str, written: dict[str, Path]
) -> None:
    streams = Directory(written[name]).streams.values()
    [plain] = [stream for stream in streams if stream.name == "plain"]
    [window] = plain.state["producers"].values()
    assert (window["id"], window["epoch"]) == (7, 2)
    assert [run["count"] for run in window["runs"]] == [3, 1]
    stored = [
        plain.records[run["llsn"] + i].value
        for run in window["runs"]
        for i in range(run["count"])
    ]
    assert stored == [b"new"] * 3 + [b"again"]


def test_nulls_are_declared_and_nothing_else_is(written: dict[str, Path]) -> None:
    declared = {name for name, path in written.items() if Directory(path).files.nulls}
    assert declared == {"nulls"}
    streams = Directory(written["nulls"]).streams.values()
    [stream] = [each for each in streams if each.name == "nulls"]
    values = [record.value for record in stream.records.values()]
    assert values == [b"before", None, b"", None, None]


def test_the_end_of_the_log_is_found(written: dict[str, Path]) -> None:
    closed, crashed = Directory(written["closed"]), Directory(written["crashed"])
    assert (closed.clean, closed.files.closed) == (True, True)
    assert (crashed.clean, crashed.files.closed) == (False, False)
    for parsed in (closed, crashed):
        mark = parsed.watermark()
        newest = parsed.files.segments[max(parsed.files.segments)]
        assert (mark["segment"], mark["salt"]) == (newest.number, newest.salt)
        assert mark["durable"] == parsed.torn
        assert mark["durable"] <= mark["reach"] <= parsed.identity["segment_bytes"]


def test_the_checkpoint_is_what_the_frames_add_up_to(path: Path) -> None:
    parsed = Directory(path)
    head, state = parsed.checkpoint()
    # It may be of the segment before, if little stands in the newest one.
    sealed = parsed.files.segments[head["segment"]].sealed
    end = sealed["sealed_bytes"] if sealed else parsed.torn
    assert end is not None
    assert head["offset"] <= end
    assert state["streams"]


@pytest.mark.parametrize("name", ["tables", "crashed tables"])
def test_tables_are_where_the_document_says(
    name: str, written: dict[str, Path]
) -> None:
    parsed = Directory(written[name])
    parsed.checkpoint()
    seen = {table.name: table for table in inspect.state(written[name]).tables}
    assert sorted(seen) == ["stock", "stock of 2"]
    for table in parsed.tables.values():
        entry, found = table.entry, seen[table.entry["name"]]
        assert (found.id, found.primary) == (
            f"{entry['table_id']:032x}",
            f"{entry['primary_id']:032x}",
        )
        assert (found.created, found.start) == (entry["created"], entry["start"])
        assert found.options == json.loads(entry["options"])
        [log] = [s for s in parsed.streams.values() if s.name == found.log]
        pin = log.state["cursors"][f"table:{found.id}"]
        assert (pin["position"], pin["pin"], pin["lease"]) == (found.pin, 1, 0)
        assert table.indexes == {
            index.name: [
                int(index.tree, 16),
                index.field,
                ["building", "active"].index(index.state),
                index.position,
            ]
            for index in found.indexes
        }
    pins = {table.name: table.pin for table in seen.values()}
    assert pins == {"stock": 7, "stock of 2": 11}


def test_every_slot_is_listed_and_whole(path: Path) -> None:
    parsed = Directory(path)
    sizes = {file.name: file.stat().st_size for file in (path / "wal").glob("*.wal")}
    listed = {f"slot-{slot:06}.wal": size for slot, size in parsed.files.slots.items()}
    assert sizes == listed
    used = [segment.slot for segment in parsed.files.segments.values()]
    assert len(used) == len(set(used))


def test_a_file_that_is_still_short_is_listed(written: dict[str, Path]) -> None:
    parsed = Directory(written["short"])
    [file] = (written["short"] / "wal").glob("*.wal")
    assert parsed.files.short == {1: file.stat().st_size} == {1: 1 << 20}
    [stream] = parsed.streams.values()
    values = [record.value for record in stream.records.values()]
    assert values == [b"%d" % n for n in range(40)]


def test_the_directory_holds_what_the_document_lists(path: Path) -> None:
    names = {
        re.sub(r"\d+", lambda m: "1".rjust(len(m[0]), "0"), str(file.relative_to(path)))
        for file in path.rglob("*")
        if file.is_file()
    }
    text = FORMATS.read_text()
    assert {name for name in names if f"`{name}`" not in text} == set()


def test_the_workload_exercises_the_whole_document(written: dict[str, Path]) -> None:
    kinds: set[str] = set()
    compressions: set[int] = set()
    for path in written.values():
        parsed = Directory(path)
        kinds |= parsed.kinds
        compressions |= parsed.compressions
    not_embedded = {"commit", "rollback", "epoch", "moved-runs", "order"}
    assert kinds == set(KINDS.values()) - not_embedded
    assert compressions == {0, 1, 2}
    assert set(LAYOUTS.blocks) - LAYOUTS.used == NOT_YET_WRITTEN


@pytest.mark.parametrize("name", ["IDENTITY", "CURRENT", "segment", "batch"])
def test_a_flipped_bit_does_not_pass(
    name: str, written: dict[str, Path], tmp_path: Path
) -> None:
    """The reader of the document is no rubber stamp."""
    copy = tmp_path / "copy"
    shutil.copytree(written["closed"], copy)
    file, at = {
        "IDENTITY": (copy / "IDENTITY", 20),
        "CURRENT": (copy / "CURRENT", 12),
        "segment": (_oldest(copy), 30),
        "batch": (_oldest(copy), 4096 + 48 + 600),
    }[name]
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises((AssertionError, OSError, ValueError)):
        Directory(copy)


def _oldest(path: Path) -> Path:
    files: Any = Directory(path).files
    slot = files.segments[min(files.segments)].slot
    return path / "wal" / f"slot-{slot:06}.wal"
