"""From the history of a git repository to its files, over two logs and an archive.

Each change of a file is a record of the log `changes`. A streaming query turns it into
an entry of the log `entries`: the key is the file, the value its new state. In the
middle `entries` is archived and trimmed; then the other changes follow. Spark counts
over archive and log. `compact` takes the last entry of each file, and the result must
equal the files that git has. Two plots show the counts.

    python examples/spark/change_events.py [--git DIR] [--out DIR] [--json]
    python examples/spark/change_events.py --input FILE --oracle FILE

Another run, also after a kill, continues in `--out` and stores nothing twice.
`docs/tutorial.md` explains it step by step.
"""

import json
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f
from rich.console import Console

import braidlog
from braidlog.errors import LogError, NotFoundError
from braidlog.pipelines import Origin, Report, compact
from braidlog.pipelines.archive_job import archive
from braidlog.spark import local_session, log_errors, register

# Parts of the demonstration: git histories, pages and plots.
sys.path.insert(0, str(Path(__file__).parents[2]))
from examples.demo.events import Tree, decode, encode, key_of, producer_of, runs
from examples.demo.files import read_lines, read_oracle, survey, write_events
from examples.demo.githistory import open_history
from examples.demo.options import DemoError
from examples.demo.page import page
from examples.demo.plot import draw, draw_growth, to_png, to_svg
from examples.demo.replay import compare
from examples.demo.report import DemoReport
from examples.demo.summary import counts, summary

TOGETHER = 2_000  # Changes that are appended in one call.
BYTES_PER_FILE = 8 << 20  # Of the archive: small, so that there are some.
TOP = 10
STEPS = 200  # Of time in the plot, whatever the age of the repository.
# Without the path: one that is no text is half a character in JSON. The key has it.
CHANGE = "op string, blob string, mode string, seq string"
ENTRY = (
    "position bigint, timestamp timestamp, key binary, value binary,"
    " headers map<string, binary>"
)


@dataclass(frozen=True)
class Given:
    """Changes as lines of a file, and the files that they must lead to."""

    origin: str
    lines: Path
    trees: dict[str, Tree]


def history(repository: Path, out: Path) -> Given:
    """Write down what a git repository has, oldest change first."""
    found = open_history(repository)
    lines = out / "events.jsonl"
    deque(write_events(lines, found.events()), maxlen=0)
    origin = f"{found.source} at {found.head[:12]}"
    return Given(origin, lines, {found.source: found.tree()})


def check_history(data: str, given: Given) -> None:
    """Refuse changes that do not go on from those that the log has.

    Raises:
        DemoError: the log is of another repository, or of another branch.
    """
    with suppress(NotFoundError), braidlog.open(data, read_only=True) as store:
        log = store.log("changes")
        if last := log.end - 1:
            same = next(read_lines(given.lines, skip=last - 1), None)
            if same is None or encode(decode(same)) != log[last].value:
                raise DemoError(
                    f"{data} has changes that are not in {given.origin}: "
                    "name another directory with --out"
                )


def import_changes(data: str, lines: Path, end: int) -> None:
    """Append the first `end` changes, as far as the log does not have them yet."""
    with braidlog.open(data) as store:
        log = store.create_log("changes", exist_ok=True)
        stored = log.end - 1
        missing = islice(read_lines(lines, skip=stored), max(0, end - stored))
        on_their_way = [
            log.submit_many(
                [encode(event) for event in events],
                keys=[key_of(event) for event in events],
                timestamps=[event.ts * 1_000_000 for event in events],
                producer=producer_of(events[0].source),
                sequence=events[0].seq + 1,
            )
            for events in runs(map(decode, missing), TOGETHER)
        ]
        for appended in on_their_way:
            appended.result()
        store.create_log("entries", exist_ok=True)


def stream(spark: SparkSession, data: str, checkpoint: Path) -> None:
    """Make entries of the changes that the query has not seen yet."""
    changes = (
        spark.readStream.format("braidlog")
        .schema("timestamp timestamp, key binary, value string")
        .options(path=data, log="changes", valueFormat="utf8")
        .option("maxRecordsPerTrigger", "100000")
        .load()
        .withColumn("change", f.from_json("value", CHANGE, {"mode": "FAILFAST"}))
    )
    file = f.to_json(f.struct("change.blob", "change.mode"))
    entries = changes.select(
        "key",
        "timestamp",
        f.when(f.col("change.op") == "put", file).alias("value"),
        f.create_map(f.lit("seq"), "change.seq").alias("headers"),
    )
    query = (
        entries.writeStream.format("braidlog")
        .options(path=data, log="entries")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def archive_and_trim(spark: SparkSession, data: str, place: Path) -> Report:
    """Move what `entries` has into Parquet files."""
    return archive(
        Origin("entries", path=data),
        place,
        bytes_per_file=BYTES_PER_FILE,
        trim=True,
        spark=spark,
    )


def read_entries(spark: SparkSession, data: str) -> DataFrame:
    """Return all entries, wherever they are now, with what they are counted by."""
    entries = (
        spark.read.format("braidlog")
        .schema(ENTRY)
        .options(path=data, log="entries", includeArchive="true")
        .load()
    )
    return entries.select(
        "position",
        "timestamp",
        "key",
        f.substring_index(f.col("key").cast("string"), "/", 1).alias("source"),
        f.date_format("timestamp", "yyyy-MM").alias("month"),
        f.col("value").isNotNull().cast("int").alias("there"),
        f.col("headers")["seq"].cast("string").cast("bigint").alias("seq"),
    )


def aggregate(entries: DataFrame, report: DemoReport) -> None:
    """Count by month and by file, and what is missing or there twice."""
    months = entries.groupBy("source", "month").count().collect()
    report.months = Counter({(row[0], row[1]): row[2] for row in months})
    busiest = entries.groupBy("key").count().orderBy(f.desc("count"), "key")
    report.top = [(bytes(row[0]), row[1]) for row in busiest.limit(TOP).collect()]
    numbers = entries.groupBy("source").agg(
        f.count("*").alias("entries"),
        f.count_distinct("seq").alias("distinct"),
        (f.max("seq") + 1).alias("due"),  # Each source counts from 0.
    )
    for row in numbers.collect():
        report.lost += row.due - row.distinct
        report.doubled += row.entries - row.distinct
    report.counted_by = "Spark"


def growth(entries: DataFrame) -> list[Row]:
    """Return step by step of time how many entries came, and how many files more."""
    seconds = f.unix_seconds("timestamp")
    first, last = entries.agg(f.min(seconds), f.max(seconds)).collect()[0]
    step = (last - first) // STEPS + 1
    of_file = Window.partitionBy("key").orderBy("position")
    before = f.coalesce(f.lag("there").over(of_file), f.lit(0))
    return (
        entries.withColumn("more", f.col("there") - before)
        .groupBy((f.floor(seconds / step) * step + step).alias("until"))
        .agg(f.count("*").alias("entries"), f.sum("more").alias("files"))
        .orderBy("until")
        .collect()
    )


def compact_all(spark: SparkSession, data: str, home: Path) -> Report:
    """Take the last entry of each file; those that are gone are left out."""
    with braidlog.open(data, read_only=True) as store:
        last = store.log("entries").end - 1
    origin = Origin("entries", path=data, include_archive=True)
    # A job has a directory: each state of the log one of its own.
    return compact(origin, home / str(last), until=last, spark=spark)


def files_of(compacted: Report, home: Path) -> dict[str, Tree]:
    """Return the files that are left, by repository and path."""
    place = home / str(compacted.parameters["until"])
    trees: dict[str, Tree] = {}
    for file in compacted.published["files"]:
        rows = pq.read_table(place / file["path"], columns=["key", "value"])
        keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
        for key, value in zip(keys, values, strict=True):
            source, _, path = key.decode("utf-8", "surrogateescape").partition("/")
            entry = json.loads(value)
            trees.setdefault(source, {})[path] = (entry["blob"], entry["mode"])
    return trees


def check_entries(
    report: DemoReport, archived: Report, data: str, grown: list[Row]
) -> None:
    """Note whether archive and log have each change once, and together all."""
    with braidlog.open(data, read_only=True) as store:
        log = store.log("entries")
        first, end = log.first, log.end
    entries = sum(row.entries for row in grown)
    report.check(
        "each change is one entry",
        entries == end - 1 == report.events and not report.lost + report.doubled,
        f"{entries:,} entries; lost {report.lost}, doubled {report.doubled}",
    )
    report.check(
        "the log begins where the archive ended",
        first == archived.published["end"],
        f"{first - 1:,} entries in the archive, {end - first:,} in the log",
    )


def check_files(
    report: DemoReport, counted: int, expected: dict[str, Tree], found: dict[str, Tree]
) -> None:
    """Note whether what is left is what git has."""
    wrong = list(compare(expected, found))
    files = sum(map(len, expected.values()))
    finding = f"{files:,} files, {len(wrong):,} differ"
    if wrong:
        finding += f"; the first: {wrong[0]}"
    report.check("compact leaves what git has", not wrong, finding)
    finding = f"{counted:,} files by counting which became and went"
    report.check("Spark counts as many", counted == files, finding)


def draw_report(
    report: DemoReport, grown: list[Row], archived: Report, out: Path
) -> None:
    """Write the plots, and the page around them."""
    title = f"{report.events:,} changes of {report.origin}"
    last = archived.published["end"] - 1
    figures = {
        "growth": draw_growth(grown, last, title),
        "changes": draw(report.months, report.top, "Where, and when"),
    }
    for name, figure in figures.items():
        to_png(figure, out / f"{name}.png")
        report.files.append(out / f"{name}.png")
    html = out / "changes.html"
    html.write_text(page(report, "".join(map(to_svg, figures.values()))), "utf-8")
    report.files.append(html)


def run(spark: SparkSession, given: Given, out: Path, console: Console) -> DemoReport:
    """Do all of it; `passed` of the report says whether everything is equal."""
    register(spark)
    report = DemoReport(given.origin, survey(given.lines).events)
    if not report.events:
        raise DemoError(f"{given.origin} has no changes to import")
    data, most = str(out / "data"), -(-report.events * 9 // 10)
    check_history(data, given)

    @contextmanager
    def step(name: str) -> Iterator[None]:
        began = time.perf_counter()
        with console.status(name):
            yield
        seconds = time.perf_counter() - began
        report.measure(name, seconds, "s")
        console.print(f"{name}: {seconds:.1f} s")

    with step("import most changes"):
        import_changes(data, given.lines, most)
    with step("stream them into entries"):
        stream(spark, data, out / "checkpoint")
    with step("archive and trim entries"):
        archived = archive_and_trim(spark, data, out / "archive")
    with step("import the other changes"):
        import_changes(data, given.lines, report.events)
    with step("stream them too"):
        stream(spark, data, out / "checkpoint")
    with step("aggregate over archive and log"):
        entries = read_entries(spark, data).cache()  # Read once, counted five times.
        aggregate(entries, report)
        grown = growth(entries)
        entries.unpersist()
    with step("compact archive and log"):
        compacted = compact_all(spark, data, out / "latest")
    found = files_of(compacted, out / "latest")
    check_entries(report, archived, data, grown)
    check_files(report, sum(row.files for row in grown), given.trees, found)
    draw_report(report, grown, archived, out)
    console.print(counts(report))
    console.print(summary(report))
    return report


def options() -> Namespace:
    parser = ArgumentParser(description="Changes of files, from git to git.")
    parser.add_argument("--git", type=Path, default=Path(), help="a repository")
    parser.add_argument("--input", type=Path, help="recorded changes instead")
    parser.add_argument("--oracle", type=Path, help="the files they lead to")
    parser.add_argument("--out", type=Path, default=Path("tutorial-out"))
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    asked = parser.parse_args()
    if (asked.input is None) != (asked.oracle is None):
        parser.error("--input and --oracle go together")
    return asked


def main() -> None:
    """Run in a Spark of this machine."""
    asked = options()
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=asked.json, highlight=False)
    try:
        if asked.input is None:
            given = history(asked.git, out)
        else:
            given = Given(asked.input.name, asked.input, read_oracle(asked.oracle))
        with tempfile.TemporaryDirectory() as scratch, log_errors():
            said = out / "spark.log"
            console.print("Spark starts, which takes some seconds")
            spark = local_session("changes", scratch=scratch, diagnostics=said)
            try:
                report = run(spark, given, out, console)
            finally:
                spark.stop()
    except (DemoError, LogError) as error:
        sys.exit(f"error: {error}")
    if asked.json:
        print(json.dumps(report.to_json()))
    sys.exit(0 if report.passed else 1)


if __name__ == "__main__":
    main()
