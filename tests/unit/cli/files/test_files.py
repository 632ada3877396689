"""Import and export: every format, compression, resumption and refusal."""

import csv
import gzip
import io
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import braidlog
from braidlog.cli.files import rows as sources
from unit.cli.conftest import Cli

ROWS = [{"id": f"k{i}", "at": 1_700_000_000 + i, "text": f"é{i}\n"} for i in range(25)]


def written(path: Path) -> Path:
    """Write ROWS in the format and compression that the name tells."""
    if ".parquet" in path.name:
        pq.write_table(pa.Table.from_pylist(ROWS), path)
        return path
    if ".csv" in path.name:
        plain = path.with_name("plain")
        with plain.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["id", "at", "text"])
            writer.writeheader()
            writer.writerows(ROWS)
        data = plain.read_bytes()
    else:
        data = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".zst":
        data = pa.compress(data, codec="zstd", asbytes=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "name", ["r.jsonl", "r.jsonl.gz", "r.jsonl.zst", "r.csv", "r.csv.zst", "r.parquet"]
)
def test_import_takes_fields(cli: Cli, tmp_path: Path, name: str) -> None:
    file = str(written(tmp_path / name))
    fields = ["--key", "id", "--timestamp", "at", "--timestamp-unit", "s"]
    [result] = cli.json(
        "import", "log", file, "--create", *fields, "--value", "text", "--batch", "7"
    )
    assert result == {"log": "log", "records": 25, "skipped": 0, "first": 1, "end": 26}
    shown = cli.json("read", "log")
    assert [r["value"] for r in shown] == [row["text"] for row in ROWS]
    assert [r["key"] for r in shown] == [row["id"] for row in ROWS]
    assert shown[3]["timestamp"] == 1_700_000_003_000_000


def test_only_the_thread_that_imports_reads_parquet(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of Arrow that lets go of bytes as Python ends aborts the process."""
    threads = set()

    class Noted(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            threads.add(threading.get_ident())
            return super().read(size)

    file = written(tmp_path / "r.parquet")
    raw = Noted(file.read_bytes())
    monkeypatch.setattr(sources, "_opened", lambda _: nullcontext(raw))
    cli.run("import", "log", str(file), "--create")
    assert threads == {threading.get_ident()}


def test_import_takes_the_whole_row_by_default(cli: Cli, tmp_path: Path) -> None:
    jsonl, parquet = written(tmp_path / "r.jsonl"), written(tmp_path / "r.parquet")
    cli.run("import", "log", str(jsonl), str(parquet), "--create")
    values = [r["value"] for r in cli.json("read", "log")]
    assert values[:25] == jsonl.read_text().splitlines()
    assert [json.loads(value) for value in values[25:]] == ROWS


def test_import_again_with_the_same_producer_adds_nothing(
    cli: Cli, tmp_path: Path
) -> None:
    file = written(tmp_path / "r.jsonl")
    arguments = ["import", "log", str(file), "--create", "--producer", "me"]
    assert cli.json(*arguments)[0]["records"] == 25
    again = cli.run(*arguments)
    assert again.stdout == "imported 0 records into log; 25 skipped\n"
    assert "for other files use another --producer" in again.stderr
    with file.open("a") as more:
        more.write('{"id":"last"}\n')
    [result] = cli.json(*arguments)
    assert (result["records"], result["skipped"]) == (1, 25)


def test_import_goes_on_after_a_bad_row(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    good = [json.dumps({"v": str(i)}) for i in range(20)]
    file.write_text("\n".join([*good[:10], "{bad", *good[11:]]))
    arguments = ["import", "log", str(file), "--value", "v", "--create"]
    arguments += ["--batch", "4", "--producer", "me"]
    result = cli.run(*arguments, code=1)
    assert f"{file}, row 11: " in result.stderr
    file.write_text("\n".join(good))
    cli.run(*arguments)
    assert cli.values("log") == [str(i) for i in range(20)]


@pytest.mark.parametrize(
    ("name", "content", "options", "complaint"),
    [
        ("r.jsonl", "[1]", ["--key", "k"], "not a JSON object"),
        (
            "r.jsonl",
            '{"a":1}',
            ["--key", "k"],
            "field 'k' does not exist (the row has: a)",
        ),
        ("r.jsonl", '{"a":"soon"}', ["--timestamp", "a"], "'soon' is not a time"),
        ("r.csv", "a,b\n1\n", [], "number of fields"),
        ("r.csv", "a,b\n1,2,3\n", [], "number of fields"),
        ("r.jsonl.gz", "{}", [], "r.jsonl.gz, row 1"),
        ("r.parquet", "nonsense", [], "r.parquet, row 1"),
        ("r.csv", "a,a\n1,2\n", ["--value", "a"], "two fields are named 'a'"),
        ("r.csv", "a,b,b\n1,2,3\n", [], "two fields are named 'b'"),
        ("r.jsonl", '{"a":"","t":null}', ["--timestamp", "t"], "'t' is null"),
        ("r.jsonl", '{"h":"[1]"}', ["--headers", "h"], "'h' does not hold headers"),
        (
            "r.jsonl",
            '{"h":"["}',
            ["--headers", "h"],
            "row 1: field 'h' does not hold headers",
        ),
        ("r.jsonl", '{"h":{"\\ud800":""}}', ["--headers", "h"], "row 1: field 'h'"),
        (
            "r.json",
            '[\n{"a":1}\n]\n',
            [],
            "r.json, row 1: the line is not a JSON value",
        ),
        ("r.jsonl", "hello", [], "row 1: the line is not a JSON value"),
        ("r.jsonl", '{"a":NaN}', [], "row 1: NaN is not JSON: write null"),
        ("r.jsonl", '{"a":-Infinity}', ["--value", "a"], "-Infinity is not JSON"),
    ],
)
def test_import_names_what_it_refuses(
    cli: Cli,
    tmp_path: Path,
    name: str,
    content: str,
    options: list[str],
    complaint: str,
) -> None:
    file = tmp_path / name
    file.write_text(content)
    result = cli.run("import", "log", str(file), "--create", *options, code=1)
    assert complaint in result.stderr
    assert cli.json("read", "log") == []


def test_a_line_without_an_end(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "_LINE_BYTES", 3 << 20)
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'"a"\n"' + b"x" * (2 << 20) + b'"\n"' + b"y" * (4 << 20))
    result = cli.run("import", "log", str(file), "--create", code=1)
    assert f"{file}, row 3: a line has more than 3 MiB" in result.stderr
    assert [len(value) for value in cli.values("log")] == [3, (2 << 20) + 2]


@pytest.mark.parametrize(
    ("written", "unit", "micros"),
    [
        ('"1714564800.5"', "s", 1_714_564_800_500_000),
        ("1714564813.000001", "s", 1_714_564_813_000_001),
        ("2071637562.104837", "s", 2_071_637_562_104_837),
        ('"2071637562104.837"', "ms", 2_071_637_562_104_837),
        ("-1.5", "s", -1_500_000),
        ("-1", "ns", -1),
        ('"9223372036854775807"', "us", (1 << 63) - 1),
    ],
)
def test_times_are_what_is_written(
    cli: Cli, tmp_path: Path, written: str, unit: str, micros: int
) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(f'{{"v":"","t":{written}}}')
    options = ["--value", "v", "--timestamp", "t", "--timestamp-unit", unit]
    cli.run("import", "log", str(file), "--create", *options)
    assert cli.json("read", "log")[0]["timestamp"] == micros


def test_seconds_with_a_fraction_lose_no_microsecond(cli: Cli, tmp_path: Path) -> None:
    times = [1_700_000_000_000_000 + 7_777_777 * n for n in range(1000)]
    file = tmp_path / "r.jsonl"
    rows = (f'{{"v":"","t":{t // 10**6}.{t % 10**6:06d}}}\n' for t in times)
    file.write_text("".join(rows))
    options = ["--value", "v", "--timestamp", "t", "--timestamp-unit", "s"]
    cli.run("import", "log", str(file), "--create", *options)
    assert [row["timestamp"] for row in cli.json("read", "log")] == times


def test_decimals_and_dates_of_parquet_are_stored_as_text(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "r.parquet"
    row = {"v": Decimal("1.10"), "k": date(2024, 5, 1), "t": Decimal("1.000001")}
    pq.write_table(pa.Table.from_pylist([row]), file)
    options = ["--value", "v", "--key", "k", "--timestamp", "t"]
    cli.run("import", "l", str(file), "--create", *options, "--timestamp-unit", "s")
    [read] = cli.json("read", "l")
    assert [read[name] for name in ("value", "key", "timestamp")] == [
        "1.10",
        "2024-05-01",
        1_000_001,
    ]


def test_parquet_is_compressed_inside(orders: Cli, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet.gz"
    result = orders.run("export", "orders", str(file), code=2)
    assert "let the name end in .parquet" in result.stderr
    file.write_bytes(b"")
    assert "unpack the file" in orders.run("import", "orders", str(file), code=2).stderr


def test_suffixes_in_capitals(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.JSONL.GZ"
    file.write_bytes(gzip.compress(b'{"v":1}\n'))
    cli.run("import", "log", str(file), "--create")
    assert cli.values("log") == ['{"v":1}']


# Times that Python has no dates for, keys that are empty or none, bytes that are no
# text, text that looks like what bytes are exported as, headers of one name.
ODD: list[tuple[bytes, bytes | None, int, list[tuple[str, bytes]]]] = [
    (b"", None, -(1 << 62), []),
    (b"\xff\x00\n", b"", 1 << 62, [("h", b"1"), ("h", b"\xff"), ("", b"")]),
    (b'{"base64":"AA=="}', b"\xfe", -1, [("n", b'{"hex":"00"}')]),
]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet"])
def test_what_was_exported_comes_back(orders: Cli, tmp_path: Path, suffix: str) -> None:
    with braidlog.open(orders.data) as node:
        log = node.log("orders")
        for value, key, timestamp, headers in ODD:
            log.append(value, key=key, timestamp=timestamp, headers=headers)
    file = str(tmp_path / f"out.{suffix}")
    orders.run("export", "orders", file)
    names = ["value", "key", "timestamp", "headers"]
    fields = [part for name in names for part in (f"--{name}", name)]
    orders.run("import", "copy", file, "--create", *fields)
    with braidlog.open(orders.data, read_only=True) as node:
        assert list(node.log("copy").read()) == list(node.log("orders").read())


def test_values_of_json_keep_how_they_are_written(cli: Cli, tmp_path: Path) -> None:
    written = ["1.50", "1e400", "0.1234567890123456789", '{"v": [1.0, {}]}', '"s"']
    file = tmp_path / "r.jsonl"
    lines = (f'{{ "v" :0, "k":"\\"}}",\t"v" : {v} , "z":[]}}\n' for v in written)
    file.write_text("".join(lines))
    cli.run("import", "log", str(file), "--value", "v", "--key", "k", "--create")
    shown = cli.json("read", "log")
    assert [record["value"] for record in shown] == [*written[:-1], "s"]
    assert {record["key"] for record in shown} == {'"}'}


def test_rows_as_json_are_json(cli: Cli, tmp_path: Path) -> None:
    table = pa.table({"a": [1.5, float("nan")], "b": [[2.0], [float("inf")]]})
    pq.write_table(table, tmp_path / "r.parquet")
    (tmp_path / "bom.jsonl").write_bytes(b'\xef\xbb\xbf{"a":1}\n')
    files = [str(tmp_path / name) for name in ("r.parquet", "bom.jsonl")]
    cli.run("import", "log", *files, "--create")
    values = [record["value"] for record in cli.json("read", "log")]
    assert values == ['{"a":1.5,"b":[2.0]}', '{"a":null,"b":[null]}', '{"a":1}']


def test_a_damaged_archive_is_named(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl.gz"
    file.write_bytes(gzip.compress(os.urandom(1 << 16))[:20] + bytes(1 << 16))
    result = cli.run("import", "log", str(file), "--create", code=1)
    assert "r.jsonl.gz, row 1: " in result.stderr


def test_arrow_stream(orders: Cli, tmp_path: Path) -> None:
    file = tmp_path / "out.arrow"
    orders.run("export", "orders", str(file), "--begin", "3", "--end", "6")
    with pa.ipc.open_stream(file) as stream:
        assert stream.read_all()["position"].to_pylist() == [3, 4, 5]


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.csv", "out.jsonl"])
def test_an_empty_log_exports(cli: Cli, tmp_path: Path, name: str) -> None:
    cli.run("log", "create", "log")
    [result] = cli.json("export", "log", str(tmp_path / name))
    assert result["records"] == 0


def test_csv_quotes_and_escapes(cli: Cli, tmp_path: Path) -> None:
    cli.run("log", "create", "log")
    cli.run("append", "log", "--delimiter", "!", stdin=b'a,"b"\nc!\xff')
    file = tmp_path / "out.csv"
    cli.run("export", "log", str(file))
    with file.open(newline="") as lines:
        rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    assert [row["value"] for row in rows] == ['a,"b"\nc', r"\xff"]


def test_export_to_stdout(orders: Cli) -> None:
    result = orders.run("export", "orders", "-", "--format", "jsonl", "--end", "3")
    assert [json.loads(line)["value"] for line in result.stdout.splitlines()] == [
        "v1",
        "v2",
    ]


@pytest.mark.parametrize("options", [[], ["--force"]])
def test_export_into_a_pipe_leaves_it_one(
    orders: Cli, tmp_path: Path, options: list[str]
) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        orders.run("export", "orders", str(pipe), *options)
        assert len(read.result(10).splitlines()) == 10
    assert pipe.is_fifo()


def test_export_through_a_link_replaces_what_it_points_to(
    orders: Cli, tmp_path: Path
) -> None:
    target, link = tmp_path / "target", tmp_path / "link.jsonl"
    target.write_text("old")
    link.symlink_to(target)
    orders.run("export", "orders", str(link), "--force")
    assert link.is_symlink()
    assert len(target.read_text().splitlines()) == 10


def test_export_replaces_only_when_told(orders: Cli, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("mine")
    assert "--force" in orders.run("export", "orders", str(file), code=2).stderr
    assert file.read_text() == "mine"
    orders.run("export", "orders", str(file), "--force")
    assert len(file.read_text().splitlines()) == 10
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_null_values_go_through_each_format(cli: Cli, tmp_path: Path) -> None:
    cli.run("append", "log", "--create", "--null", "--key", "k")
    cli.run("append", "log", "")
    cli.run("append", "log", "v")
    cli.run("append", "log", "--null", "v", code=2)
    assert [row["value"] for row in cli.json("read", "log")] == [None, "", "v"]
    text = [line.split("\t")[2:] for line in cli.run("read", "log").stdout.splitlines()]
    assert text == [["k", "\\N"], ["", ""], ["", "v"]]
    assert cli.run("read", "log", "--format", "raw").stdout == "\n\nv\n"
    for suffix, marks in (("jsonl", []), ("csv", ["--null", "\\N"]), ("parquet", [])):
        file = str(tmp_path / f"out.{suffix}")
        cli.run("export", "log", file)
        fields = ["--value", "value", "--key", "key", *marks]
        cli.json("import", suffix, file, "--create", *fields)
        found = [row["value"] for row in cli.json("read", suffix)]
        assert found == [None, "", "v"], suffix
    # What no option calls null is a value.
    cli.json("import", "text", str(tmp_path / "out.csv"), "--create", "--value=value")
    assert [row["value"] for row in cli.json("read", "text")] == ["\\N", "", "v"]
