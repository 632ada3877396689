"""table: reading beside a writer; verify, repair and rebuild of damaged ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import braidlog
from unit.cli.conftest import Cli

KEYS = 4000


@pytest.fixture
def stock(cli: Cli) -> Cli:
    """Have a table of many keys, in files, with two indexes."""
    with braidlog.open(cli.data) as store:
        log = store.create_log("orders")
        indexes = {"by_city": "json:/city", "by_n": "json:/n:int"}
        table = store.create_table("stock", log="orders", indexes=indexes)
        log.append_many(
            [b'{"city":"c%d","n":%d}' % (n % 3, n) for n in range(KEYS)],
            keys=[b"k%04d" % n for n in range(KEYS)],
        )
        table.flush()
    return cli


def directory(cli: Cli, index: str | None = None) -> Path:
    """Return the directory of a tree of the table."""
    with braidlog.open(cli.data, read_only=True) as store:
        [entry] = store._backend.tables()
    tree = entry.primary
    if index is not None:
        found = entry.index(index)
        assert found is not None
        tree = found.tree
    return cli.data / "tables" / f"{entry.id:032x}" / f"{tree:032x}"


def damage(tree: Path) -> None:
    """Change one byte of a page that is not the first."""
    run = next(tree.glob("*.run"))
    content = bytearray(run.read_bytes())
    content[len(content) // 3] ^= 1
    run.write_bytes(content)


def test_tables_are_read_beside_their_writer(stock: Cli) -> None:
    with braidlog.open(stock.data) as writer:
        writer.log("orders").append(b'{"city":"new","n":-1}', key=b"new")
        assert [row["table"] for row in stock.json("table", "list")] == ["stock"]
        [described] = stock.json("table", "describe", "stock")
        assert (described["applied"], described["lag"]) == (KEYS + 1, 0)
        assert "new" in stock.run("table", "get", "stock", "new").stdout
        found = stock.run("table", "scan", "stock", "--index", "by_n", "--limit", "1")
        assert '"new"' in found.stdout or "new" in found.stdout
        file = stock.data.parent / "stock.parquet"
        [written] = stock.json("table", "export", "stock", str(file))
        assert (written["records"], written["position"]) == (KEYS + 1, KEYS + 1)
        [whole] = stock.json("table", "verify")
        assert whole == {
            "tables": 1,
            "records": KEYS + 1,
            "entries": 2 * (KEYS + 1),
            "findings": [],
        }
        locked = stock.run("table", "drop", "stock", "--yes", code=4)
        assert "open for writing" in locked.stderr
    assert "no damage found" in stock.run("table", "verify", "stock").stderr
    assert "no key" in stock.run("table", "get", "stock", "nobody", code=3).stderr
    assert "'other'" in stock.run("table", "verify", "other", code=3).stderr


def test_a_damaged_index_is_built_anew(stock: Cli) -> None:
    damage(directory(stock, "by_city"))
    [report] = stock.json("table", "verify", code=5)
    [finding] = report["findings"]
    assert (finding["table"], finding["index"]) == ("stock", "by_city")
    assert finding["path"].endswith(".run")
    shown = stock.run("table", "verify", code=5)
    assert "by_city" in shown.stdout
    assert "table repair stock" in shown.stderr
    dry = stock.run("table", "repair", "stock", "--dry-run")
    assert "would make index 'by_city'" in dry.output
    stock.run("table", "verify", code=5)
    refused = stock.run("table", "repair", "stock", code=2)
    assert "--yes" in refused.stderr
    [repaired] = stock.json("table", "repair", "stock", "--yes")
    assert (repaired["repaired"], repaired["records"], repaired["entries"]) == (
        "by_city",
        KEYS,
        2 * KEYS,
    )
    [again] = stock.json("table", "repair", "stock", "--yes")
    assert again["repaired"] is None
    assert "no damage found" in stock.run("table", "verify").stderr


def test_a_lost_index_is_built_anew(stock: Cli) -> None:
    shutil.rmtree(directory(stock, "by_n"))
    [report] = stock.json("table", "verify", code=5)
    assert report["findings"][0]["index"] == "by_n"
    [repaired] = stock.json("table", "repair", "stock", "--yes")
    assert (repaired["repaired"], repaired["entries"]) == ("by_n", 2 * KEYS)


@pytest.mark.parametrize("lost", [False, True])
def test_a_damaged_table_is_made_of_its_log(stock: Cli, lost: bool) -> None:
    tree = directory(stock)
    if lost:
        shutil.rmtree(tree)
        # The log has all of it, but a reader makes no files.
        [report] = stock.json("table", "verify", code=5)
    else:
        damage(tree)
        [report] = stock.json("table", "verify", code=5)
    assert (report["findings"][0]["table"], report["findings"][0]["index"]) == (
        "stock",
        None,
    )
    [repaired] = stock.json("table", "repair", "stock", "--yes")
    assert (repaired["repaired"], repaired["records"]) == ("table", KEYS)
    assert "no damage found" in stock.run("table", "verify").stderr


def test_a_damaged_table_whose_log_was_trimmed_is_kept(stock: Cli) -> None:
    with braidlog.open(stock.data) as store:
        store.log("orders").trim(100)
    damage(directory(stock))
    refused = stock.run("table", "repair", "stock", "--yes", code=6)
    assert "cannot be rebuilt" in refused.stderr
    assert "Restore a backup" in refused.stderr
    # What is not damaged is still read.
    assert directory(stock).exists()
    refused = stock.run("table", "rebuild", "stock", code=6)
    assert "cannot be rebuilt" in refused.stderr


def test_a_table_is_rebuilt(stock: Cli) -> None:
    before = directory(stock)
    [rebuilt] = stock.json("table", "rebuild", "stock")
    assert rebuilt == {"table": "stock", "applied": KEYS}
    assert directory(stock) != before
    [whole] = stock.json("table", "verify")
    assert whole["entries"] == 2 * KEYS


def test_a_log_that_lost_its_end_is_shown_and_mended(stock: Cli) -> None:
    older = stock.data.parent / "older"
    shutil.copytree(stock.data, older)
    with braidlog.open(stock.data) as store:
        store.log("orders").append(b'{"city":"new","n":-1}', key=b"new")
        store.table("stock").flush()
    shutil.copytree(stock.data / "tables", older / "tables", dirs_exist_ok=True)
    shutil.rmtree(stock.data)
    older.rename(stock.data)

    problem = f"position {KEYS + 1}, and its log ends at {KEYS + 1}"
    [listed] = stock.json("table", "list")
    assert problem in listed["problem"]
    assert "has position" in stock.run("table", "list").stdout
    for command in (("describe", "stock"), ("get", "stock", "k1"), ("scan", "stock")):
        refused = stock.run("table", *command, code=5)
        assert problem in refused.stderr
        assert "braidlog table repair stock" in refused.stderr
    [report] = stock.json("table", "verify", code=5)
    [finding] = report["findings"]
    assert (finding["table"], finding["index"]) == ("stock", None)
    assert problem in finding["problem"]
    assert "braidlog table repair stock" in finding["next_step"]
    assert stock.run("append", "orders", "x", "--key", "more").stdout
    [done] = stock.json("table", "repair", "stock", "--yes")
    assert (done["repaired"], done["records"]) == ("table", KEYS + 1)
    assert problem not in str(stock.json("table", "list"))
    [listed] = stock.json("table", "list")
    assert listed["problem"] is None
    assert "no damage found" in stock.run("table", "verify").stderr


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--begin", "k2", "--end", "k1"), 2),
        (("--begin", "k1", "--end", "k1", "--reverse"), 2),
        (("--begin", "k1", "--end", "k2"), 0),
        # Numbers, which text would have in another order.
        (("--index", "by_n", "--begin", "9", "--end", "10"), 0),
        (("--index", "by_n", "--begin", "10", "--end", "9"), 2),
    ],
)
def test_bounds_in_the_wrong_order_are_refused(
    stock: Cli, options: tuple[str, ...], code: int
) -> None:
    refused = stock.run("table", "scan", "stock", *options, code=code)
    assert ("give the smaller one as --begin" in refused.stderr) == (code == 2)
