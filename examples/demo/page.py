"""The report as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from examples.demo.events import shown
from examples.demo.plot import by_source
from examples.demo.report import DemoReport

__all__ = ["page"]

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #fff;
       max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; vertical-align: top;
         border-bottom: 1px solid #e4e7eb; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.yes { color: #18794e; } .no { color: #b42318; font-weight: bold; }
"""


def page(report: DemoReport, svg: str) -> str:
    """Return the report with its plot inside."""
    verdict = "Everything is equal." if report.passed else "NOT everything is equal."
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Braidlog demo: {_text(report.origin)}</title>",
            f"<style>{_STYLE}</style>\n</head>\n<body>",
            f"<h1>{report.events:,} changes of {_text(report.origin)}</h1>",
            f'<p class="{_class(report.passed)}">{verdict}</p>',
            svg,
            "<h2>Proved</h2>",
            _table(("", "check", "finding"), _checks(report)),
            "<h2>Measured</h2>",
            _table(("what", "value", "unit"), _measurements(report), numbers=(1,)),
            "<h2>Paths changed most often</h2>",
            _table(("path", "changes"), _paths(report), numbers=(1,)),
            f"<h2>Changes per month (counted by {_text(report.counted_by)})</h2>",
            _months(report),
            "</body>\n</html>\n",
        ]
    )


def _checks(report: DemoReport) -> Iterable[Sequence[str]]:
    for check in report.checks:
        mark = "✓" if check.passed else "✗"
        yield (
            f'<span class="{_class(check.passed)}">{mark}</span>',
            _text(check.name),
            _text(check.finding),
        )


def _measurements(report: DemoReport) -> Iterable[Sequence[str]]:
    for figure in report.measurements:
        yield _text(figure.name), f"{figure.value:,.6g}", _text(figure.unit)


def _paths(report: DemoReport) -> Iterable[Sequence[str]]:
    for key, count in report.top:
        yield _text(shown(key)), f"{count:,}"


def _months(report: DemoReport) -> str:
    sources = by_source(report.months)
    rows = (
        [month, *(_count(sources[source][month]) for source in sources)]
        for month in sorted({month for _, month in report.months})
    )
    header = ("month", *(_text(source) for source in sources))
    return _table(header, rows, numbers=range(1, len(header)))


def _count(count: int) -> str:
    return f"{count:,}" if count else ""


def _table(
    header: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()
) -> str:
    right = set(numbers)

    def line(cells: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} class="number">{cell}</{tag}>'
            if column in right
            else f"<{tag}>{cell}</{tag}>"
            for column, cell in enumerate(cells)
        )

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<tr>{line(header, "th")}</tr>\n{body}\n'
        "</table></div>"
    )


def _class(passed: bool) -> str:
    return "yes" if passed else "no"


def _text(text: str) -> str:
    return escape(shown(text))
