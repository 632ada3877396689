"""`braidlog backup` and `braidlog restore` on a directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

import braidlog
from braidlog.cli import main
from unit.cli.conftest import Cli


def run(*arguments: str, code: int = 0) -> Result:
    """Run a command that needs no directory of logs."""
    result = CliRunner().invoke(main, [*arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result


def rows(*arguments: str) -> list[Any]:
    lines = run(*arguments, "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_from_the_backup_to_the_restored_directory(orders: Cli, tmp_path: Path) -> None:
    place, target = str(tmp_path / "backups"), tmp_path / "restored"
    said = orders.run("backup", "create", place).stdout
    assert "1 log, 10 records" in said
    orders.run("append", "orders", "later")
    (second,) = orders.json("backup", "create", place)
    assert second["records"] == 11
    first, again = rows("backup", "list", place)
    assert again == second
    (whole,) = orders.json("backup", "create", place, "--base", "none")
    assert whole["base"] is None
    run("backup", "delete", place, whole["backup"], "--yes")
    (seen,) = rows("backup", "verify", place)
    assert (seen["backup"], seen["findings"]) == (second["backup"], [])
    assert "orders" not in run("backup", "list", place).stdout
    run("backup", "verify", place, first["backup"])

    (done,) = rows("restore", place, str(target))
    assert (done["records"], done["target"]) == (11, str(target))
    assert Cli(target).values("orders") == [*orders.values("orders")]
    older = tmp_path / "older"
    run("restore", place, str(older), "--backup", first["backup"])
    assert len(Cli(older).values("orders")) == 10


def test_failures_say_what_to_do(orders: Cli, tmp_path: Path) -> None:
    place, target = tmp_path / "backups", str(tmp_path / "restored")
    assert "no backup in" in run("restore", str(place), target, code=3).stderr
    assert "no backups" in run("backup", "list", str(place)).output
    (made,) = orders.json("backup", "create", str(place))
    base = orders.run("backup", "create", str(place), "--base", "x", code=1)
    assert "'x' is not the name of a backup" in base.stderr
    missing = "20260101T000000Z-00000000"
    orders.run("backup", "create", str(place), "--base", missing, code=3)
    run("backup", "delete", str(place), missing, "--yes", code=3)
    refused = run("backup", "delete", str(place), made["backup"], code=2)
    assert "not confirmed" in refused.stderr
    run("restore", str(place), str(orders.data), code=1)

    (part,) = place.rglob("*.part")
    good = part.read_bytes()
    part.write_bytes(good[:-1])
    damage = run("backup", "verify", str(place), code=5)
    assert str(part) in damage.stderr
    assert "--base none" in damage.stderr
    failed = run("restore", str(place), target, code=5)
    assert "braidlog backup verify" in failed.stderr
    opened = Cli(Path(target)).run("log", "list", code=5)
    assert "did not finish; run it again" in opened.stderr
    part.write_bytes(good)
    run("restore", str(place), target)

    (place / "lists" / f"{made['backup']}.json").write_text("{}")
    listed = run("backup", "list", str(place), code=5)
    assert made["backup"] in listed.stderr


def test_tables_are_named_and_can_be_left_out_of_clusters(
    orders: Cli, tmp_path: Path
) -> None:
    place, target = tmp_path / "backups", tmp_path / "restored"
    with braidlog.open(orders.data) as store:
        store.create_log("stock").append(b"5", key=b"tea")
        store.create_table("stock", log="stock", indexes={"by_value": "value"}).flush()
    assert (
        "2 logs, 11 records, 1 table,"
        in orders.run("backup", "create", str(place)).stdout
    )
    (listed,) = rows("backup", "list", str(place))
    assert listed["tables"] == 1
    assert ", 1 table" in run("restore", str(place), str(target)).stdout
    with braidlog.open(target) as store:
        assert store.table("stock").get(b"tea") is not None

    node = str(tmp_path / "node")
    usage = run("restore", str(place), node, "--without-tables", code=2)
    assert "--without-tables needs --as-cluster" in usage.stderr
    given = ("--as-cluster", "shop")
    assert ", 1 table" in run("restore", str(place), node, *given).stdout
    other = str(tmp_path / "other")
    said = run("restore", str(place), other, *given, "--without-tables").stdout
    assert "1 table" not in said

    files = list(place.rglob("*.run"))
    assert len(files) == 2
    files[0].unlink()
    damage = run("backup", "verify", str(place), code=5)
    assert "is missing (table 'stock')" in damage.stderr
