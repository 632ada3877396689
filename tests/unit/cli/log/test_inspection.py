"""inspect, verify and repair on real files."""

import os
from pathlib import Path

import pytest

from braidlog.store.store import open_store
from unit.cli.conftest import Cli
from unit.store.files import damage, fill


@pytest.fixture
def files(tmp_path: Path) -> Cli:
    data = tmp_path / "data"
    fill(data)
    return Cli(data)


def test_segments(files: Cli) -> None:
    found = files.json("inspect", "segments")
    assert found[0]["state"] == "sealed"
    assert found[0]["logs"][0]["log"] == "orders"
    table = files.run("inspect", "segments").stdout.splitlines()
    assert table[0].split()[:3] == ["number", "slot", "state"]
    assert len(table) == len(found) + 1


def test_frames_are_bounded(files: Cli) -> None:
    found = files.json("inspect", "frames", "1", "--limit", "3", "--log", "small")
    assert [frame["log"] for frame in found] == ["small"] * 3
    assert found[1]["batch"]["compression"] == "zstd"
    table = files.run("inspect", "frames", "1", "--limit", "1").stdout.split()
    assert table[:3] == ["offset", "length", "kind"]
    assert "preamble" in table
    missing = files.run("inspect", "frames", "999", code=3)
    assert "segment 999" in missing.stderr


def test_index_manifest_and_state(files: Cli) -> None:
    assert files.json("inspect", "index", "1", "--log", "orders")[0]["first"] == 1
    assert files.json("inspect", "index", "--samples")[0]["offset"] > 0
    assert files.json("inspect", "manifest")[-1]["operation"] == "close"
    assert "open-segment" in files.run("inspect", "manifest").stdout
    [state] = files.json("inspect", "state")
    assert state["recovery"] == "clean"
    shown = dict(
        line.split(maxsplit=1)
        for line in files.run("inspect", "state").stdout.splitlines()
    )
    assert shown["logs.orders.cursors.billing"] == "50"
    assert shown["logs.orders.producers.7"] == "101"


def test_verify_passes(files: Cli) -> None:
    assert "no damage found" in files.run("verify").stderr
    [report] = files.json("verify")
    assert (report["findings"], report["records"]) == ([], 200)


def test_verify_fails_with_the_code_for_corruption(files: Cli) -> None:
    damage(files.data, "orders", 50)
    result = files.run("verify", code=5)
    assert "slot-" in result.stdout
    assert "hint: " in result.stderr
    [report] = files.json("verify", code=5)
    assert report["findings"][0]["offset"] > 0


def test_a_damaged_first_record_hides_nothing_else_of_a_log(files: Cli) -> None:
    damage(files.data, "orders", 1)
    result = files.run("log", "describe", "orders")
    assert "note: the first timestamp is unknown: " in result.stderr
    assert "orders" in result.stdout
    [described] = files.json("log", "describe", "orders")
    assert (described["first"], described["first_timestamp"]) == (1, None)


def test_a_stranger_is_a_note(files: Cli) -> None:
    (files.data / "mine.txt").write_text("mine")
    assert "mine.txt: not a file of Braidlog" in files.run("verify").stderr


def test_repair_shows_the_loss_and_asks(files: Cli) -> None:
    damage(files.data, "orders", 60)
    result = files.run("repair", code=2)
    assert "orders" in result.stdout
    assert "without 1 lost record" in result.stderr
    copy = files.data.with_name("data-repaired")
    assert not copy.exists()
    files.run("repair", "--dry-run")
    [plan] = files.json("repair", "--dry-run", "--keep", "newest")
    assert sum(loss["records"] for loss in plan["losses"]) == 60
    assert not copy.exists()
    done = files.run("repair", "--yes")
    assert f"mv {copy} {files.data}" in done.stderr
    with open_store(copy) as node:
        assert node.log("orders").end == 101
    assert "exists" in files.run("repair", "--yes", code=1).stderr
    assert "made by `braidlog repair`" in Cli(copy).run("verify").stderr


def test_repair_without_loss_does_not_ask(files: Cli) -> None:
    copy = files.data.with_name("copy")
    [result] = files.json("repair", "-o", str(copy))
    assert (result["losses"], result["output"]) == ([], str(copy))


def test_a_directory_that_is_none_is_not_found(tmp_path: Path) -> None:
    for command in (["verify"], ["repair"], ["inspect", "segments"]):
        assert "error: " in Cli(tmp_path / "no").run(*command, code=3).stderr


def test_a_repair_asks_before_a_loss_that_cannot_be_counted(orders: Cli) -> None:
    [newest] = (orders.data / "wal").glob("*.wal")
    os.truncate(newest, 0)
    result = orders.run("repair", code=2)
    assert "of the newest segment" in result.stdout
    assert "without what is lost" in result.stderr


@pytest.mark.parametrize("name", [".", "wal/.."])
def test_a_repair_of_a_directory_by_another_name(
    orders: Cli, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(orders.data)
    result = Cli(Path(name)).run("repair")
    copy = orders.data.with_name("data-repaired")
    assert f"verified copy in {copy}: 10 records" in result.stdout
    assert f"mv {orders.data} {orders.data}-damaged" in result.stderr


def test_a_repair_into_what_it_reads_is_refused(orders: Cli) -> None:
    before = sorted(orders.data.rglob("*"))
    result = orders.run("repair", "--output", str(orders.data / "new"), code=2)
    assert "is inside " in result.stderr
    assert sorted(orders.data.rglob("*")) == before
