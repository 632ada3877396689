"""Plots: how far ours is from its targets, the floor and the best peer."""

from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.figure import Figure

from benchmarks.report import number, verdict
from benchmarks.rows import Better, Row

_OURS, _PEER, _MISSED = "#2a6f97", "#adb5bd", "#c1121f"
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Braidlog benchmarks</title>
<style>
body {{
  font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem;
  padding: 0 1rem;
}}
svg {{ width: 100%; height: auto }}
table {{ border-collapse: collapse; margin: 1rem 0; width: 100% }}
th, td {{
  border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: right;
  vertical-align: top;
}}
th:first-child, td:first-child, td:last-child, th:last-child {{ text-align: left }}
.missed {{ color: #c1121f; font-weight: 600 }}
dl {{
  color: #555; display: grid; gap: 0 1rem;
  grid-template-columns: max-content 1fr;
}}
dd {{ margin: 0 }}
</style>
<h1>Braidlog benchmarks</h1>
<dl>{facts}</dl>
{chart}
<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>
</html>
"""
_HEADS = (
    *(
        "workload",
        "metric",
        "ours",
        "floor",
        "ours / floor",
        "best peer",
        "ours / peer",
    ),
    *("target", "result", "note"),
)


def write(
    folder: Path, stem: str, facts: Mapping[str, str], rows: Sequence[Row]
) -> list[Path]:
    """Write a PNG and an HTML page; return where they are."""
    figure = _figure(rows)
    image, page = folder / f"{stem}.png", folder / f"{stem}.html"
    figure.savefig(image, dpi=130, bbox_inches="tight")
    drawing = StringIO()
    figure.savefig(drawing, format="svg", bbox_inches="tight")
    pyplot.close(figure)
    page.write_text(_page(drawing.getvalue(), facts, rows))
    return [image, page]


def _figure(rows: Sequence[Row]) -> Figure:
    """Draw how many times better than the best peer ours is; 1 is a draw."""
    shown = [row for row in rows if row.ratio_to_peer]
    figure, axes = pyplot.subplots(figsize=(10, 0.5 + 0.45 * max(1, len(shown))))
    times = [_advantage(row) for row in shown]
    colours = [_OURS if each >= 1 else _MISSED for each in times]
    axes.barh(range(len(shown)), times, color=colours)
    labels = [f"{row.workload} ({row.metric})" for row in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    for at, row in enumerate(shown):
        axes.text(
            times[at],
            at,
            f" {number(times[at])}x {row.best_peer_name}",
            fontsize=8,
            va="center",
        )
    axes.axvline(1, color=_PEER, linewidth=1)
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.invert_yaxis()
    axes.set_title("Times better than the best peer" if shown else "Nothing to compare")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _advantage(row: Row) -> float:
    ratio = row.ratio_to_peer or 1.0
    return 1 / ratio if row.better is Better.LOWER else ratio


def _page(drawing: str, facts: Mapping[str, str], rows: Sequence[Row]) -> str:
    return _PAGE.format(
        facts="".join(
            f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
            for name, value in facts.items()
        ),
        chart=drawing[drawing.index("<svg") :],
        heads="".join(f"<th>{head}</th>" for head in _HEADS),
        body="".join(map(_line, rows)),
    )


def _line(row: Row) -> str:
    cells = (
        row.workload,
        row.metric,
        f"{number(row.ours)} {row.unit}",
        number(row.floor),
        number(row.ratio_to_floor),
        f"{number(row.best_peer)} {row.best_peer_name or ''}",
        number(row.ratio_to_peer),
        row.target,
        verdict(row).plain,
        row.note,
    )
    style = ' class="missed"' if row.missed else ""
    return (
        f"<tr{style}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
    )
