"""Eight experiments in which another engine lost data, made with tables.

A log-structured engine whose files are described by a log of their own lost rows, or
could not be opened any more, when that log was torn, cut or removed, and when small
numbers, drops and slow work met. Each test is named after one of these experiments.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog import _native
from braidlog.errors import ClosedError, LogError, NotFoundError
from unit.store.tables.damage import (
    World,
    edits,
    in_memory,
    manifest,
    open_,
    says,
    table_of,
    tree_dir,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path / "d")
    world.store.create_table("t", log="log", indexes={"by": "value:int"})
    return world


def merged(store: braidlog.Store) -> None:
    """Merge all runs of each tree of the table into one."""
    host = store._table_host()
    native = host.native(host.entry("t"))._native
    while native.compact():
        pass


def test_x1_a_torn_tail_is_never_appended_to(world: World, tmp_path: Path) -> None:
    """Its manifest was torn by a kill; the next open wrote on behind the torn bytes."""
    world.put(40)
    world.store.table("t").flush()
    entry = table_of(world.store)
    killed = world.killed(tmp_path / "killed")
    torn = manifest(tree_dir(killed, entry, entry.primary))
    torn.write_bytes(torn.read_bytes()[:-5])
    for turn in range(3):
        world.store = open_(killed)
        assert says(world.store, world) == "right"
        now = manifest(tree_dir(killed, entry, entry.primary))
        assert now != torn, "each open begins a manifest file of its own"
        with world.store.ddl() as change:
            change.create_index("t", f"late{turn}", "value")
        assert world.store.table("t").index(f"late{turn}").wait(timeout=30)
        world.put(20)
        world.store.table("t").flush()
        world.store.table("t").verify()
        killed, torn = world.killed(tmp_path / f"killed{turn}"), now
    with open_(killed) as store:
        assert len(list(store.table("t").index("late2"))) == len(world.rows)


def test_x2_zero_and_one_are_values(tmp_path: Path) -> None:
    """Position 0 was not written and read as another field: 17 indexes were empty."""
    world = World(tmp_path / "d")
    indexes = {f"i{n}": "value:int" for n in range(41)}
    world.store.create_table("t", log="log", indexes=indexes)
    for turn in range(4):
        table = world.store.table("t")
        for name in indexes:
            assert len(list(table.index(name))) == len(world.rows), (turn, name)
        if turn == 2:
            table.flush()
        elif turn == 0:
            world.put(1)
        world.store.close()
        world.store = open_(world.path)
    world.store.close()


def test_x3_what_is_dropped_during_slow_work_stays_dropped(
    world: World, tmp_path: Path
) -> None:
    """A drop during a slow checkpoint came back without rows, and then broke all."""
    world.put(100)
    with world.store.ddl() as change:
        change.create("kept", log="log")
    host = world.store._table_host()
    native = host.native(host.entry("t"))
    assert native.apply() == 100, "of nothing an index would be built at once"
    inside, go_on = threading.Event(), threading.Event()
    ended: list[BaseException | None] = []

    def slow(read: int) -> bool:
        inside.set()
        return go_on.wait(30)

    def build(tree: int) -> None:
        try:
            native.build(tree, slow)
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    with host._upkeeping:  # Only this test builds.
        with world.store.ddl() as change:
            change.create_index("t", "late", "value")
        tree = table_of(world.store).indexes[-1].tree
        working = threading.Thread(target=build, args=(tree,))
        working.start()
        assert inside.wait(30)
        with world.store.ddl() as change:
            change.truncate("kept")
            change.drop("t")
        shutil.copytree(world.path, tmp_path / "during")
        go_on.set()
        working.join()
    assert isinstance(ended[0], ClosedError), "nothing is written for it"
    host.maintain()
    assert len(list((world.path / "tables").iterdir())) == 1
    world.store.close()
    for path in (tmp_path / "during", world.path):
        with open_(path) as store:
            assert store.tables() == ["kept"]
            with pytest.raises(NotFoundError):
                store.table("t")
            assert list(store.table("kept")) == []
            position = store.log("log").append(b"1", key=b"new")
            store.table("kept").flush()
            assert [each.position for each in store.table("kept")] == [position]
            store._table_host().maintain()
            assert len(list((path / "tables").iterdir())) == 1


def test_x4_what_a_call_promised_survives_a_power_cut() -> None:
    """Its log of files was synced when it was closed, and directories never."""
    disk = _native.MemoryDisk(seed=4)
    store = in_memory(disk)
    log = store.create_log("log")
    steps: list[Callable[[], object]] = [
        lambda: store.create_table("t", log="log", indexes={"by": "value"}),
        lambda: log.append_many([b"1"] * 50, keys=[b"%d" % n for n in range(50)]),
        lambda: store.table("t").flush(),
        lambda: log.trim(51),
        lambda: store.create_table("u", log="log"),
        lambda: store.drop_table("u"),
    ]
    seen = []
    for step in steps:
        step()
        after = in_memory(disk.crash("drop"))
        found = {name: len(list(after.table(name))) for name in after.tables()}
        by = len(list(after.table("t").index("by")))
        seen.append((found, by))
        after.close()
    store.close()
    assert seen == [
        ({"t": 0}, 0),
        ({"t": 50}, 50),
        ({"t": 50}, 50),
        ({"t": 50}, 50),
        ({"t": 50, "u": 0}, 50),
        ({"t": 50}, 50),
    ]


@pytest.mark.parametrize("trimmed", [False, True])
def test_x5_a_manifest_that_lost_its_end_is_no_empty_table(
    world: World, tmp_path: Path, trimmed: bool
) -> None:
    """Cut back to an earlier edit, whose files a merge had removed: no row of 3001."""
    for _ in range(3):
        world.put(40)
        world.store.table("t").flush()
    merged(world.store)
    if trimmed:
        assert world.store.log("log").trim(100) == 100
    world.put(5)
    entry = table_of(world.store)
    killed = world.killed(tmp_path / "killed")
    seen = set()
    whole = manifest(tree_dir(killed, entry, entry.primary))
    for at in edits(whole):
        copy = tmp_path / "copy"
        shutil.copytree(killed, copy)
        cut = copy / whole.relative_to(killed)
        cut.write_bytes(cut.read_bytes()[:at])
        with open_(copy) as store:
            seen.add(said := says(store, world))
            if said != "right" and not trimmed:
                store.table("t").rebuild()
                assert says(store, world) == "right"
            elif said != "right":
                with pytest.raises(LogError):
                    store.table("t").rebuild()
        shutil.rmtree(copy)
    assert seen == {"right", "MissingFileError", "CorruptionError"}


def test_x6_a_damaged_page_is_no_end_of_the_table(world: World, tmp_path: Path) -> None:
    """Its index file was lost and a page damaged: 498 of 1000 rows, from then on."""
    world.put(1000, keys=1000, size=300)
    world.store.table("t").flush()
    assert world.store.log("log").trim(1000) == 1000
    entry = table_of(world.store)
    killed = world.killed(tmp_path / "killed")
    primary, index = entry.primary, entry.indexes[0].tree
    for tree in (primary, index):
        copy = tmp_path / "copy"
        shutil.copytree(killed, copy)
        (run,) = tree_dir(copy, entry, tree).glob("*.run")
        data = bytearray(run.read_bytes())
        data[len(data) // 3] ^= 16
        run.write_bytes(data)
        for _ in range(2):
            with open_(copy) as store:
                # An open may read a page of an index, and then builds it anew.
                said = says(store, world)
                assert said == "CorruptionError" or (said, tree) == ("right", index)
                if tree == primary:
                    assert store.table("t").get(b"000") is not None, "others stay"
        shutil.rmtree(copy)
    # Without its footer the run of an index is made again, and that of the table not.
    for tree, expected in [(primary, "MissingFileError"), (index, "right")]:
        copy = tmp_path / "copy"
        shutil.copytree(killed, copy)
        (run,) = tree_dir(copy, entry, tree).glob("*.run")
        run.write_bytes(run.read_bytes()[:-128])
        with open_(copy) as store:
            assert says(store, world) == expected
        shutil.rmtree(copy)


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("older", [False, True])
def test_x7_a_missing_manifest_is_no_older_state(
    world: World, tmp_path: Path, trimmed: bool, older: bool
) -> None:
    """The newest file of its log was removed, and the one before it taken for it."""
    world.put(30)
    world.store.table("t").flush()
    entry = table_of(world.store)
    tree = tree_dir(world.path, entry, entry.primary)
    shutil.copytree(tree, tmp_path / "older")
    world.put(30)
    world.store.table("t").flush()
    if trimmed:
        assert world.store.log("log").trim(60) == 60
    killed = world.killed(tmp_path / "killed")
    tree = tree_dir(killed, entry, entry.primary)
    if older:
        # A manifest and its pointer from before, as out of a copy.
        shutil.rmtree(tree)
        shutil.copytree(tmp_path / "older", tree)
    else:
        manifest(tree).unlink()
    with open_(killed) as store:
        said = says(store, world)
        # The log completes an older state, as long as it has what is behind it.
        assert said == ("right" if older and not trimmed else "MissingFileError")


@pytest.mark.parametrize("cut", range(4))
def test_x8_an_index_that_was_built_is_never_empty(
    world: World, tmp_path: Path, cut: int
) -> None:
    """The end of its log was lost behind a build: an index of no rows, and no error."""
    world.put(60)
    world.store.table("t").flush()
    with world.store.ddl() as change:
        change.drop_index("t", "by")
        change.create_index("t", "by", "value:int")
    assert world.store.table("t").index("by").wait(timeout=30)
    world.put(10)
    world.store.table("t").flush()
    assert world.store.log("log").trim(70) == 70
    entry = table_of(world.store)
    killed = world.killed(tmp_path / "killed")
    tree = tree_dir(killed, entry, entry.indexes[0].tree)
    places = list(edits(manifest(tree)))
    if cut == 3:
        shutil.rmtree(tree)
    else:
        file = manifest(tree)
        at = [places[-2], places[-3], places[1]][cut]
        file.write_bytes(file.read_bytes()[:at])
    with open_(killed) as store:
        assert says(store, world) == "right"
    with open_(killed) as store:
        assert says(store, world) == "right"
