"""The steps of the demo, one after the other."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

import braidlog
from braidlog.sources.origin import Origin
from examples.demo.events import Tree
from examples.demo.files import Survey, read_oracle, survey, write_events
from examples.demo.githistory import GitHistory, open_history
from examples.demo.options import LOG, DemoError, DemoOptions
from examples.demo.page import page
from examples.demo.pasts import keep_table, pasts, positions_of, trees_of
from examples.demo.plot import draw, to_png, to_svg
from examples.demo.replay import Replay, Row, compare
from examples.demo.report import DemoReport
from examples.demo.sparkjob import count_with_spark, differences
from examples.demo.summary import counts, summary
from examples.demo.supervisor import run_import

__all__ = ["Demo", "Material", "run_demo"]

_SHOWN: Final = 10
_PASTS: Final = 20


@dataclass(frozen=True, slots=True)
class Material:
    """The input as a file, what is in it, and what a replay of it must give."""

    path: Path
    survey: Survey
    trees: dict[str, Tree]
    history: GitHistory | None = None
    """Where the events come from, unless from a file."""


def run_demo(options: DemoOptions, console: Console) -> DemoReport:
    """Do the main job; look at ``passed`` of the report that is returned.

    The data directory is deleted at the end unless ``keep`` is set or something was not
    equal.

    Raises:
        DemoError: The input, the oracle or the system is not fit for it.
        LogError: The log, or Spark's Java, failed.
    """
    options.check()
    if options.spark:
        _need_java()
    demo = _kind(options)(options, console)
    with tempfile.TemporaryDirectory(prefix="braidlog-demo-") as scratch:
        demo.run(Path(scratch))
    return demo.report


def _kind(options: DemoOptions) -> type[Demo]:
    if options.nodes is None:
        return Demo
    # Late: it needs an extra.
    from examples.demo.clustered import ClusterDemo

    return ClusterDemo


class Demo:
    """One run: what is known so far is in ``report``."""

    def __init__(self, options: DemoOptions, console: Console) -> None:
        """Do nothing yet."""
        self.options = options
        self.console = console
        self.report = DemoReport(origin="")
        self.data = options.data or options.out

    def run(self, scratch: Path) -> None:
        """Prepare, work, and delete the log if nothing asks to keep it."""
        material = self._prepare(scratch)
        self.options.out.mkdir(parents=True, exist_ok=True)
        if self.options.data is None:
            self.data = Path(tempfile.mkdtemp(prefix="log-", dir=self.options.out))
        keep = True
        try:
            self.work(material, scratch)
            keep = self.options.keep or not self.report.passed
        finally:
            if keep:
                self.say(f"the log is kept in {self.data}")
        if not keep:
            shutil.rmtree(self.data)

    def work(self, material: Material, scratch: Path) -> None:
        """Import, replay, compare, count and draw."""
        self.import_(material)
        replay = self.replay(material)
        self._compare(material, replay)
        self._look_back(material)
        self.report.months = replay.counts.months
        self.report.top = replay.counts.top(self.options.top)
        if self.options.spark:
            self._count(replay, scratch)
        self.console.print(counts(self.report))
        self._draw()
        self.console.print(summary(self.report))

    def say(self, text: str) -> None:
        """Tell how far it is."""
        self.console.print(Text(text))

    def _prepare(self, scratch: Path) -> Material:
        """Read the whole input once, so that progress has an end."""
        history = None
        if self.options.input is not None and self.options.oracle is not None:
            path, trees = self.options.input, read_oracle(self.options.oracle)
            self.report.origin = path.name
        else:
            history = open_history(self.options.git)
            path, trees = self._extract(history, scratch)
        found = survey(path)
        if not found.events:
            raise DemoError(f"{self.report.origin} has no changes to import")
        self.report.events = found.events
        self.report.measure("input", found.bytes / 1e6, "MB")
        self.say(f"{found.events:,} events, {found.bytes / 1e6:,.1f} MB")
        return Material(path, found, trees, history)

    def _extract(
        self, history: GitHistory, scratch: Path
    ) -> tuple[Path, dict[str, Tree]]:
        self.report.origin = f"{history.source} at {history.head[:12]}"
        path = scratch / "events.jsonl"
        with self.progress(f"reading the history of {history.source}", None) as bar:
            for written in write_events(path, history.events()):
                bar(written)
        return path, {history.source: history.tree()}

    def import_(self, material: Material) -> None:
        """Import in spite of kills."""
        events, kills = material.survey.events, self.options.kills
        with self.progress("importing", events) as bar:
            outcome = run_import(self.data, material.path, events, kills, bar)
        for kill in outcome.kills:
            self.say(
                f"SIGKILL to process {kill.pid}: {kill.acknowledged:,} events were "
                f"acknowledged, the log has {kill.found:,}, the last one {kill.last}"
            )
            self.report.measure("recovery", kill.recovery_seconds * 1000, "ms")
        self.report.kills, self.report.resent = outcome.kills, outcome.resent
        self.report.measure("import", events / outcome.seconds, "events/s")
        if outcome.kills:
            found = ", ".join(f"{kill.found:,}" for kill in outcome.kills)
            self.report.check(
                "resumed where the log stopped",
                all(kill.found >= kill.acknowledged for kill in outcome.kills),
                f"after {found} events; {outcome.resent:,} sent again, not doubled",
            )

    def replay(self, material: Material) -> Replay:
        """Read everything back."""
        began = time.perf_counter()
        replay = Replay()
        columns = ["position", "timestamp", "key", "value"]
        with (
            Origin(LOG, **self.place()).open() as log,
            self.progress("replaying", material.survey.events) as bar,
        ):
            look = log.look()
            for batch in log.batches(look.first, look.end, columns=columns):
                replay.feed(_rows(batch))
                bar(replay.records)
        seconds = time.perf_counter() - began
        self.report.measure("replay", replay.records / seconds, "events/s")
        return replay

    def place(self) -> dict[str, Any]:
        """Return where the log is, for Spark and for `Origin`."""
        return {"path": str(self.data.absolute())}

    def _compare(self, material: Material, replay: Replay) -> None:
        report, events = self.report, material.survey.events
        stored = replay.records - replay.doubled
        report.lost = max(replay.lost, events - stored)
        report.doubled = replay.doubled
        whole = not report.lost and not report.doubled and replay.records == events
        report.check(
            "nothing lost or doubled",
            whole and not replay.mismatched,
            f"{replay.records:,} records; lost {report.lost}, "
            f"doubled {report.doubled}, out of place {replay.mismatched}",
        )
        same = replay.digest == material.survey.digest
        report.check(
            "log equals input, byte for byte",
            same,
            f"SHA-256 {replay.digest[:16]}…" if same else "the digests differ",
        )
        wrong = list(compare(material.trees, replay.trees))
        self._show(wrong)
        files = sum(map(len, material.trees.values()))
        report.check(
            "replay equals the oracle",
            not wrong,
            f"{files:,} files, {len(wrong):,} differ",
        )

    def _look_back(self, material: Material) -> None:
        """Compare the table with the oracle, and at old commits with git."""
        if self.options.nodes is not None:
            return  # The importing process keeps tables in a directory only.
        with braidlog.open(self.data) as store:
            table = keep_table(store)
            wrong = list(compare(material.trees, trees_of(table)))
            self._show(wrong)
            files = sum(map(len, material.trees.values()))
            self.report.check(
                "the table equals the oracle",
                not wrong,
                f"{files:,} files, {len(wrong):,} differ",
            )
            if material.history is not None:
                self._compare_pasts(table, material.path, material.history)

    def _compare_pasts(self, table: Any, path: Path, history: GitHistory) -> None:
        positions, seed = positions_of(path), random.randrange(1 << 32)
        compared = files = differing = 0
        began = time.perf_counter()
        with self.progress("looking back", min(_PASTS, len(positions))) as bar:
            for past in pasts(table, history, positions, _PASTS, seed):
                self._show(f"{past.commit}: {each}" for each in past.differences)
                compared += 1
                files += past.files
                differing += bool(past.differences)
                bar(compared)
        seconds = time.perf_counter() - began
        self.report.check(
            "the table at old commits equals git",
            not differing,
            f"{compared} of {len(positions):,} commits (seed {seed}), {files:,} files; "
            f"{differing} commits differ",
        )
        self.report.measure("looking back", files / seconds, "files/s")

    def _show(self, differences: Iterable[object]) -> None:
        for difference in islice(differences, _SHOWN):
            self.console.print(Text(f"DIFFERENT {difference}", "red"))

    def _count(self, replay: Replay, scratch: Path) -> None:
        with self.console.status("counting with Spark"):
            result = count_with_spark(
                self.place(),
                self.options.top,
                scratch / "spark",
                self.options.out / "spark.log",
            )
        wrong = differences(result, replay.counts)
        self._show(wrong)
        self.report.check(
            "Spark counts what the replay counts",
            not wrong,
            f"{result.months.total():,} changes, {len(result.months):,} counts per "
            f"source and month, top {len(result.top)} paths, "
            f"{result.partitions} partition(s)",
        )
        self.report.measure("Spark start", result.start_seconds, "s")
        self.report.measure("Spark jobs", result.job_seconds, "s")
        self.report.months, self.report.top = result.months, result.top
        self.report.counted_by = "Spark"

    def _draw(self) -> None:
        report, out = self.report, self.options.out
        title = f"{report.events:,} changes of {report.origin}"
        figure = draw(report.months, report.top, title)
        png, html = out / "changes.png", out / "changes.html"
        to_png(figure, png)
        html.write_text(page(report, to_svg(figure)), encoding="utf-8")
        report.files += [png, html]

    @contextmanager
    def progress(self, name: str, total: int | None) -> Iterator[Any]:
        """Show how far something is; give a function to call with the count."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(name, total=total)
            yield lambda count: progress.update(task, completed=count)


def _rows(batch: Any) -> Iterator[Row]:
    instants = batch.column("timestamp").cast("int64")
    return zip(
        batch.column("position").to_pylist(),
        instants.to_pylist(),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        strict=True,
    )


def _need_java() -> None:
    """Fail before the work, not after it."""
    try:
        import pyspark  # noqa: F401

        from braidlog.spark import ensure_java
    except ImportError:
        raise DemoError(
            "the Spark part needs pyspark: pip install 'braidlog[spark]', "
            "or leave it out with --no-spark"
        ) from None
    ensure_java()
