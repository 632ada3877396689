"""Archives on a disk: reading, damage, two archivers, what a crash leaves."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

from braidlog import Record
from braidlog.archive import Archive, groups, open_archive, verify
from braidlog.archive.layout import MANIFESTS, Manifest, manifest_name
from braidlog.archive.place import Place
from braidlog.archive.publishing import (
    KEPT,
    next_generation,
    publish,
    remove_leftovers,
)
from braidlog.archive.reading import newest
from braidlog.archive.rows import COLUMNS, Choice
from braidlog.archive.writing import write_file
from braidlog.errors import (
    AlreadyExistsError,
    ArchiveDamagedError,
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    TrimmedError,
)
from unit.archive import made


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.of(tmp_path / "archive")


def found(archive: Archive, *bounds: int | None, **choice: Any) -> list[Record]:
    begin, end = bounds or (None, None)
    chunks = archive.records(begin, end, choice=Choice(**choice))
    return [record for chunk, _ in chunks for record in chunk]


def test_only_the_thread_that_reads_touches_the_bytes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of Arrow that lets go of them as Python ends aborts the process."""
    made.add(place, made.files(place, 1, 10))
    threads = set()
    read = groups._Window.read

    def noted(window: Any, size: int = -1) -> Any:
        threads.add(threading.get_ident())
        return read(window, size)

    monkeypatch.setattr(groups._Window, "read", noted)
    assert len(found(open_archive(place.location))) == 9
    assert threads == {threading.get_ident()}


def test_rows_come_back_exactly(place: Place) -> None:
    extreme = made.rows(
        7,
        3,
        timestamp=[-(1 << 63), (1 << 63) - 1, 0],
        key=[b"", None, b"\xff\x00"],
        value=[b"", b"v" * 100_000, b"\x00"],
        headers=[[("", b""), ("ü", b"\xff"), ("", b"2")], None, []],
        stream=[1, 2, 1],
        llsn=[5, 9, 6],
    )
    made.add(place, [write_file(place, 7, 10, [extreme], "a")])
    archive = open_archive(place.location, log_id=made.LOG_ID)
    table = archive.to_arrow(columns=list(COLUMNS))
    assert table.cast(extreme.schema).to_batches()[0].equals(extreme)
    assert [r.as_tuple() for r in found(archive)] == [
        (7, -(1 << 63), b"", b"", (("", b""), ("ü", b"\xff"), ("", b"2"))),
        (8, (1 << 63) - 1, None, b"v" * 100_000, ()),
        (9, 0, b"\xff\x00", b"\x00", ()),
    ]
    assert verify(archive).sound


def test_ranges_and_filters(place: Place) -> None:
    made.add(place, made.files(place, 3, 40, 41, 100))
    archive = open_archive(place.location)
    everything = [record.position for record in found(archive)]
    assert everything == list(range(3, 100))
    for begin, end in ((3, 4), (39, 42), (40, 41), (99, 100), (50, 50), (60, 999)):
        expected = list(range(begin, min(end, 100)))
        assert [r.position for r in found(archive, begin, end)] == expected
        table = archive.to_arrow(begin, end, columns=["llsn"])
        assert table["llsn"].to_pylist() == expected
    late = found(archive, since=50_000, until=53_000, key=b"k1")
    assert [record.position for record in late] == []
    late = found(archive, since=50_000, until=53_000, key=b"k2")
    assert [record.position for record in late] == [52]
    for position, error in ((2, TrimmedError), (101, BeyondEndError)):
        with pytest.raises(error):
            found(archive, position, None)
    with pytest.raises(InvalidArgumentError):
        archive.to_arrow(columns=["glsn"])


def test_only_what_is_wanted_is_read(place: Place) -> None:
    made.add(place, made.files(place, 1, 50, 100))
    archive = open_archive(place.location)
    Path(place.path(archive.manifest.files[1].path)).unlink()
    assert len(found(archive, 1, 50)) == 49
    assert found(archive, until=2000)[0].position == 1
    with pytest.raises(ArchiveDamagedError, match="no longer exists"):
        found(archive)


def test_memory_is_a_row_group(place: Place) -> None:
    values = [os.urandom(1 << 20) for _ in range(40)]
    batches = [
        made.rows(at, 1, value=[value], headers=[None])
        for at, value in enumerate(values, 1)
    ]
    made.add(place, [write_file(place, 1, 41, iter(batches), "a")])
    archive = open_archive(place.location)
    sizes = [batch.nbytes for batch in archive.batches()]
    assert max(sizes) < 8 << 20
    assert [record.value for record in found(archive)] == values


BAD: dict[str, list[pa.RecordBatch]] = {
    "a missing record": [made.rows(1, 4), made.rows(6, 4)],
    "a doubled record": [made.rows(1, 5), made.rows(5, 5)],
    "a missing one within": [made.rows(1, 9, position=[1, 2, 3, 3, 5, 6, 7, 8, 9])],
    "a missing LLSN": [made.rows(1, 9, llsn=[1, 2, 3, 4, 6, 7, 8, 9, 10])],
    "too few": [made.rows(1, 8)],
    "too many": [made.rows(1, 10)],
    "none": [],
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_the_range_leaves_nothing(case: str, place: Place) -> None:
    with pytest.raises(CorruptionError):
        write_file(place, 1, 10, BAD[case], "a")
    assert [p for p in Path(place.root).rglob("*") if p.is_file()] == []


def test_damage_is_never_given_out(place: Place) -> None:
    made.add(place, made.files(place, 1, 200))
    archive = open_archive(place.location)
    good = found(archive)
    path = Path(place.path(archive.manifest.files[0].path))
    data = path.read_bytes()
    chance = random.Random(1)
    for at in chance.sample(range(len(data)), 150):
        flipped = bytearray(data)
        flipped[at] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        assert not verify(archive).sound
        # A flip in what readers need not look at changes nothing.
        with suppress(ArchiveDamagedError):
            assert found(archive) == good
    for damaged in (data[:-1], data + b"x", b"", data[: len(data) // 2]):
        path.write_bytes(damaged)
        assert len(verify(archive).damage) == 1
        with pytest.raises(ArchiveDamagedError):
            found(archive)


def test_what_is_wrong_is_named(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        open_archive(place.location)
    made.add(place, made.files(place, 1, 10))
    with pytest.raises(InvalidArgumentError, match="not to the one"):
        open_archive(place.location, log_id="0" * 32)
    with pytest.raises(InvalidArgumentError, match="cannot hold an archive"):
        open_archive("nonsense://x/y")
    shutil.copy(
        Path(place.root, MANIFESTS, manifest_name(1)),
        Path(place.root, MANIFESTS, manifest_name(2)),
    )
    with pytest.raises(ArchiveDamagedError, match="is generation 1"):
        open_archive(place.location)


def test_another_file_system_can_be_read_and_not_written(place: Place) -> None:
    made.add(place, made.files(place, 1, 10))
    elsewhere = Place("sub://x", fs.SubTreeFileSystem(place.root, place.system), "")
    other = Place("sub://x", elsewhere.system, ".")
    manifest = newest(other)
    assert manifest is not None
    assert len(found(Archive(other, manifest))) == 9
    for call in (
        lambda: made.files(other, 10, 20),
        lambda: publish(other, manifest, "a"),
    ):
        with pytest.raises(InvalidArgumentError, match="can only be read"):
            call()


def test_of_two_archivers_one_publishes(place: Place) -> None:
    made.add(place, made.files(place, 1, 10))
    before = newest(place)
    options: dict[str, Any] = {"log": "log", "log_id": made.LOG_ID}
    ours = next_generation(before, **options, job="a", files=made.files(place, 10, 20))
    theirs = next_generation(
        before, **options, job="b", files=made.files(place, 10, 15)
    )
    assert publish(place, theirs, "b") == theirs
    with pytest.raises(AlreadyExistsError, match="Run it again"):
        publish(place, ours, "a")
    assert publish(place, theirs, "again") == theirs
    assert newest(place) == theirs
    assert remove_leftovers(place, theirs) == 1
    assert verify(open_archive(place.location)).sound


def test_old_generations_go_and_cannot_come_back(place: Place) -> None:
    old = made.add(place, made.files(place, 1, 10))
    reader = open_archive(place.location)
    for begin in range(10, 10 + KEPT + 3):
        made.add(place, made.files(place, begin, begin + 1))
    assert len(place.names(MANIFESTS)) == KEPT
    last = newest(place)
    assert last is not None
    with pytest.raises(AlreadyExistsError):
        publish(place, old, "sleeper")
    assert newest(place) == last
    assert len(found(reader)) == 9
    assert reader.refresh()
    assert (reader.end, reader.refresh()) == (10 + KEPT + 3, False)


def test_what_others_may_still_publish_stays(place: Place) -> None:
    manifest = made.add(place, made.files(place, 1, 10))
    ahead = made.files(place, 10, 20)[0]
    behind = made.files(place, 5, 20)[0]
    torn = Path(place.root, MANIFESTS, manifest_name(1) + ".x.tmp")
    torn.write_bytes(b"half")
    stranger = Path(place.root, "data/000000000000/notes.txt")
    stranger.write_bytes(b"keep")
    assert remove_leftovers(place, manifest) == 2
    left = {p.name for p in Path(place.root, "data").rglob("*") if p.is_file()}
    assert Path(ahead.path).name in left
    assert Path(behind.path).name not in left
    assert stranger.exists()
    assert not torn.exists()


class Crash(BaseException):
    """The process is gone."""


def crashing(step: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Stop everything at the so-many-th call that changes or syncs files."""
    calls = [0]

    def counted(name: str) -> None:
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] >= step:
                raise Crash
            return original(*arguments, **options)

        monkeypatch.setattr(os, name, call)

    for name in ("fsync", "link", "replace", "unlink", "mkdir"):
        counted(name)
    return lambda: calls[0]


def test_wherever_it_stops_the_archive_is_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, done = 0, False
    while not done:
        step += 1
        place = Place.of(tmp_path / str(step))
        old: Manifest = made.add(place, made.files(place, 1, 10))
        with monkeypatch.context() as patch:
            crashing(step, patch)
            try:
                made.add(place, made.files(place, 10, 20), job="next")
                done = True
            except Crash:
                pass
        archive = open_archive(place.location)
        assert archive.end in (10, 20)
        assert verify(archive).sound
        # Whoever comes next brings it to the end, and tidies up.
        if archive.end == 10:
            made.add(place, made.files(place, 10, 20), job="next")
        manifest = newest(place)
        assert manifest is not None
        remove_leftovers(place, manifest)
        assert (manifest.end, manifest.files[0]) == (20, old.files[0])
        data = {p.name for p in Path(place.root, "data").rglob("*.parquet")}
        assert data == {Path(file.path).name for file in manifest.files}
    assert step > 8
