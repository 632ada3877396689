"""The report for the terminal: tables of rich."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from examples.demo.events import shown
from examples.demo.plot import by_source
from examples.demo.report import DemoReport

__all__ = ["counts", "summary"]

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_RECENT_MONTHS: Final = 12
_SOURCES_MAX: Final = 6
_TREND_YEARS: Final = 24


def counts(report: DemoReport) -> RenderableType:
    """Return what was counted: per source and month, and the top paths."""
    return Group(_sources(report), Text(), _recent(report), Text(), _paths(report))


def summary(report: DemoReport) -> RenderableType:
    """Return what was proved and measured, and where the files are."""
    return Group(
        Text(),
        _proved(report),
        Text(),
        _measured(report),
        Text(),
        *(Text(f"wrote {path}", style="dim", no_wrap=True) for path in report.files),
        _verdict(report),
    )


def _sources(report: DemoReport) -> RenderableType:
    table = Table(box=box.SIMPLE)
    title = f"Changes per source, counted by {report.counted_by}"
    table.add_column("source")
    table.add_column("changes", justify="right")
    table.add_column("by year", no_wrap=True)
    table.add_column("busiest month", no_wrap=True)
    for source, months in by_source(report.months).items():
        busiest = max(months, key=lambda month: (months[month], month))
        table.add_row(
            Text(shown(source)),
            f"{months.total():,}",
            _trend(months, report),
            f"{busiest}: {months[busiest]:,}",
        )
    return _titled(title, table)


def _recent(report: DemoReport) -> RenderableType:
    sources = by_source(report.months, _SOURCES_MAX)
    table = Table(box=box.SIMPLE)
    title = "Changes per source and month, latest months (all: in the HTML)"
    table.add_column("month", no_wrap=True)
    for source in sources:
        table.add_column(Text(shown(source)), justify="right", overflow="ellipsis")
    for month in sorted({month for _, month in report.months})[-_RECENT_MONTHS:]:
        cells = (months[month] for months in sources.values())
        table.add_row(month, *(f"{cell:,}" if cell else "·" for cell in cells))
    return _titled(title, table)


def _trend(months: Counter[str], report: DemoReport) -> str:
    """Draw one block a year, on the scale of the busiest year of this source."""
    years: Counter[int] = Counter()
    for month, count in months.items():
        years[int(month[:4])] += count
    last = max(int(month[:4]) for _, month in report.months)
    first = min(int(month[:4]) for _, month in report.months)
    span = range(max(first, last - _TREND_YEARS + 1), last + 1)
    most = max(years.values())
    return "".join(_BLOCKS[-(-years[year] * 8 // most)] for year in span)


def _paths(report: DemoReport) -> RenderableType:
    table = Table(box=box.SIMPLE)
    title = "Paths changed most often"
    table.add_column("changes", justify="right")
    table.add_column("path", overflow="fold")
    for key, count in report.top:
        table.add_row(f"{count:,}", Text(shown(key)))
    return _titled(title, table)


def _proved(report: DemoReport) -> RenderableType:
    table = Table(box=box.SIMPLE)
    title = "Proved"
    table.add_column("")
    table.add_column("check", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for check in report.checks:
        mark = Text("✓", "green") if check.passed else Text("✗", "bold red")
        table.add_row(mark, check.name, Text(check.finding))
    return _titled(title, table)


def _measured(report: DemoReport) -> RenderableType:
    table = Table(box=box.SIMPLE)
    title = "Measured"
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for figure in report.measurements:
        digits = 0 if figure.value >= 1000 else 3
        table.add_row(figure.name, f"{figure.value:,.{digits}f}", figure.unit)
    return _titled(title, table)


def _verdict(report: DemoReport) -> Text:
    if report.passed:
        kills = f"{len(report.kills)} kill(s), " if report.kills else ""
        return Text(
            f"PASSED: {report.events:,} events, {kills}"
            f"lost {report.lost}, doubled {report.doubled}",
            "bold green",
        )
    failed = ", ".join(_failed(report)) or "nothing was checked"
    return Text(f"FAILED: {failed}", "bold red")


def _failed(report: DemoReport) -> Iterator[str]:
    return (check.name for check in report.checks if not check.passed)


def _titled(title: str, table: Table) -> RenderableType:
    """Put the title above; rich would break it at the width of a narrow table."""
    return Group(Text(title, "bold"), table)
