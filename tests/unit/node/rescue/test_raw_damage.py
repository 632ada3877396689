"""Damaged directories of a dead cluster: left out by name, or refused by name."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from braidlog import _native
from braidlog.errors import CorruptionError, InvalidArgumentError, NotFoundError
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.rescue.raw import choose_raw, open_raw
from braidlog.store.merge import Figures, OnHole
from braidlog.store.node_store import NodeStore
from unit.node.rescue.test_raw import LOG, config, finish

RECORDS = 60
OLD, NEW = 8, 55
"""Records in the oldest segment, and in the newest one."""


def value(at: int) -> bytes:
    return b"record %03d;" % at + bytes(3000)


def write(path: Path, node: int, *, committed: int, cuts: int | None) -> None:
    """Three segments; the log of the repository is in the newest."""
    store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
    replica = ReplicaStore.create(store, 4, msgspec.msgpack.encode(config()))
    replica.share_order(LOG)
    replica.enter(1)
    for at in range(1, RECORDS + 1):
        replica.append(1, [_native.encode_batch([value(at)], timestamps=1)])
        if at <= committed:
            replica.commit(1, CommitContext(at, at, at, 1, at))
    finish(store, path, node, cuts)


def made(path: Path, *, committed: int, cuts: int | None) -> list[Path]:
    paths = [path / f"{node}" for node in (1, 2, 3)]
    for node, each in enumerate(paths, 1):
        write(each, node, committed=committed, cuts=cuts)
    return paths


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories in which everything is committed, by the repository too."""
    path = tmp_path_factory.mktemp("closed")
    made(path, committed=RECORDS, cuts=RECORDS)
    return path


@pytest.fixture
def paths(closed: Path, tmp_path: Path) -> list[Path]:
    shutil.copytree(closed, tmp_path / "nodes")
    return sorted((tmp_path / "nodes").iterdir())


def slot(path: Path, at: int) -> Path:
    """The segment file with a record."""
    [found] = [f for f in path.glob("wal/*.wal") if value(at) in f.read_bytes()]
    return found


def flip(path: Path, at: int) -> Path:
    file = slot(path, at)
    data = bytearray(file.read_bytes())
    data[data.index(value(at)) + 40] ^= 1
    file.write_bytes(data)
    return file


def head(path: Path, at: int) -> Path:
    file = slot(path, at)
    data = bytearray(file.read_bytes())
    data[4096 + 20] ^= 1
    file.write_bytes(data)
    return file


def gone(path: Path, at: int) -> Path:
    file = slot(path, at)
    file.unlink()
    return file


def short(path: Path, at: int) -> Path:
    file = slot(path, at)
    file.write_bytes(file.read_bytes()[: 20 << 10])
    return file


def manifest(path: Path, _: int) -> Path:
    file = path / "CURRENT"
    file.write_bytes(bytes(len(file.read_bytes())))
    return file


def identity(path: Path, _: int) -> Path:
    (path / "IDENTITY").unlink()
    return path


Harm = Callable[[Path, int], Path]


def read(
    paths: list[Path], on_hole: OnHole = "stop"
) -> tuple[list[tuple[int, bytes]], Figures]:
    with open_raw(paths, "bank", on_hole=on_hole) as merged:
        found = [
            (record.position, record.value)
            for rows in merged.encoded()
            for row in rows
            for record in _native.Batch(row.batch).records(
                row.position - row.first, row.first, row.first + row.count
            )
        ]
        return found, merged.figures()


def rows(*without: int) -> list[tuple[int, bytes]]:
    return [(at, value(at)) for at in range(1, RECORDS + 1) if at not in without]


@pytest.mark.parametrize(
    ("harm", "at", "victims"),
    [
        *itertools.product([flip, head, gone, short], [OLD, NEW], [1, 2]),
        (manifest, OLD, 1),
        (identity, OLD, 1),
    ],
)
def test_one_whole_copy_is_enough(
    paths: list[Path], harm: Harm, at: int, victims: int
) -> None:
    files = [harm(path, at) for path in paths[:victims]]
    found, figures = read(paths)
    assert found == rows()
    assert {damage.path for damage in figures.damages} == set(map(str, files))
    assert not figures.holes


def test_two_directories_of_which_nothing_can_be_read(paths: list[Path]) -> None:
    """They may have had a stream of which nobody else knows."""
    manifest(paths[0], 0)
    identity(paths[2], 0)
    with pytest.raises(
        CorruptionError, match="no other copy proves which records it held"
    ):
        read(paths)
    found, figures = read(paths, "skip")
    assert found == rows()
    assert [damage.begin for damage in figures.left_out] == [0, 0]
    assert any("no other copy proves" in note for note in figures.notes)


def test_several_that_are_damaged_make_up_for_each_other(paths: list[Path]) -> None:
    files = [flip(paths[0], OLD), flip(paths[1], NEW), flip(paths[2], 30)]
    found, figures = read(paths)
    assert found == rows()
    assert [damage.path for damage in figures.damages] == list(map(str, files))
    for damage in figures.damages:
        assert damage.end is not None
        assert damage.end - damage.begin < 8 << 10, "only the range that is damaged"


@pytest.mark.parametrize("at", [OLD, NEW])
def test_what_all_copies_lack_is_named(paths: list[Path], at: int) -> None:
    for path in paths:
        file = flip(path, at)
    with pytest.raises(CorruptionError, match=f"position {at} is in no other") as said:
        read(paths)
    assert said.value.offset > 0
    assert str(paths[0] / "wal") in said.value.path
    found, figures = read(paths, "skip")
    assert found == rows(at)
    assert figures.holes == ((at, at + 1),)
    assert str(file) in {damage.path for damage in figures.damages}


def test_an_end_that_all_copies_lack_is_named(paths: list[Path]) -> None:
    """The watermark files show that there was more."""
    for path in paths:
        file = slot(path, NEW)
        data = file.read_bytes()
        at = data.index(value(NEW))
        file.write_bytes(data[:at] + bytes(len(data) - at))
    with pytest.raises(CorruptionError, match=f"records behind position {NEW - 1}"):
        read(paths)
    found, figures = read(paths, "skip")
    assert found == rows()[: NEW - 1]
    assert figures.unproven == (4,)
    assert any("0 of the voters" in note for note in figures.notes)


def test_records_that_nobody_can_place_are_not_dropped_in_silence(
    tmp_path: Path,
) -> None:
    """Two copies of the repository are damaged, and only they have the last cuts."""
    paths = made(tmp_path, committed=50, cuts=RECORDS)
    shutil.rmtree(paths[0])
    write(paths[0], 1, committed=50, cuts=50)
    assert read(paths)[0] == rows()
    for path in paths[1:]:
        flip(path, NEW)
    with pytest.raises(CorruptionError, match="records 51 to 60, and no copy"):
        read(paths)
    found, figures = read(paths, "skip")
    assert found == rows()[:50]
    assert any("records 51 to 60" in note for note in figures.notes)


def test_a_directory_without_a_node_is_no_damage(paths: list[Path]) -> None:
    with pytest.raises(NotFoundError):
        read([*paths, paths[0].parent])
    for path in paths:
        identity(path, 0)
    with pytest.raises(NotFoundError, match=str(paths[0])):
        read(paths)


def test_a_directory_that_is_named_twice_is_no_running_node(paths: list[Path]) -> None:
    with pytest.raises(InvalidArgumentError, match="more than once"):
        read([*paths, paths[0].parent / ".." / "nodes" / paths[0].name])


def test_streams_are_read_where_the_end_is_whole(paths: list[Path]) -> None:
    flip(paths[1], NEW)
    sources = choose_raw(paths, "bank")
    assert [source.path for source in sources] == [paths[0], paths[2]]
