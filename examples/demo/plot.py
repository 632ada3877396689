"""Draw what was counted: changes by month and by path, and how files become many."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from examples.demo.events import shown
from examples.demo.options import DemoError

__all__ = ["OTHERS", "by_source", "draw", "draw_growth", "to_png", "to_svg"]

OTHERS: Final = "others"

_SOURCES_MAX: Final = 8
_INK: Final = "#1f2933"
_FAINT: Final = "#9aa5b1"
_GRID: Final = "#e4e7eb"
_BAR: Final = "#2b6cb0"
_PALE: Final = "#bcd4ec"
_PATH_CHARACTERS: Final = 64
_SMALL: Final[dict[str, Any]] = {"fontsize": 8, "color": _INK}


def by_source(
    months: Mapping[tuple[str, str], int], sources_max: int = _SOURCES_MAX
) -> dict[str, Counter[str]]:
    """Return the months of each source, busiest first; small ones become others."""
    sources: dict[str, Counter[str]] = {}
    for (source, month), count in months.items():
        sources.setdefault(source, Counter())[month] += count
    ordered = sorted(sources, key=lambda name: (-sources[name].total(), name))
    if len(ordered) > sources_max:
        small = [sources[name] for name in ordered[sources_max - 1 :]]
        ordered = ordered[: sources_max - 1]
        return {name: sources[name] for name in ordered} | {
            OTHERS: sum(small, Counter())
        }
    return {name: sources[name] for name in ordered}


def draw(
    months: Mapping[tuple[str, str], int], top: Sequence[tuple[bytes, int]], title: str
) -> Any:
    """Return the figure: one panel for each source, and one for the paths.

    Of a single month there would be one bar for each source, so only the paths.

    Raises:
        DemoError: matplotlib is not installed.
    """
    sources = by_source(months) if len({month for _, month in months}) > 1 else {}
    heights = [0.5 + 0.95 * len(sources), 0.5 + 0.24 * len(top)]
    figure = _figure(0.4 + sum(heights[0 if sources else 1 :]), title)
    if not sources:
        _draw_paths(figure.subplots(), top)
        return figure
    # Apart from each other, so that long paths do not push the months aside.
    upper, lower = figure.subfigures(2, 1, height_ratios=heights)
    panels = upper.subplots(len(sources), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (source, counts) in zip(panels, sources.items(), strict=True):
        _draw_months(axes, source, counts)
    _draw_dates(panels[-1], {month for _, month in months})
    _draw_paths(lower.subplots(), top)
    return figure


def draw_growth(
    steps: Sequence[tuple[int, int, int]], archived: int, title: str
) -> Any:
    """Return the figure of all entries so far, and of the files that there were.

    ``steps`` are, in order, a time (seconds since 1970), how many entries came in the
    step that ends there, and by how many the files became more. So many of the entries
    are ``archived``, from the first one on.

    Raises:
        DemoError: matplotlib is not installed.
    """
    figure = _figure(3.6, title)
    axes = figure.subplots()
    ends = [end for end, _, _ in steps]
    begin = ends[0] - max(1, (ends[-1] - ends[0]) // 50)
    times = [datetime.fromtimestamp(second, UTC) for second in (begin, *ends)]
    entries = list(accumulate((count for _, count, _ in steps), initial=0))
    files = list(accumulate((more for _, _, more in steps), initial=0))
    seam = next(n for n, count in enumerate(entries) if count >= archived)
    for part, color in ((slice(seam + 1), _PALE), (slice(seam, None), _BAR)):
        axes.fill_between(times[part], entries[part], color=color, linewidth=0)
    axes.plot(times, files, color=_INK, linewidth=1.8)
    axes.axvline(times[seam], color=_FAINT, linewidth=0.8, linestyle="--")
    note = {**_SMALL, "textcoords": "offset points"}
    for count, name in ((entries[-1], "entries"), (files[-1], "files")):
        axes.annotate(f"{count:,} {name}", (times[-1], count), (5, -3), **note)
    top = (times[seam], entries[-1])
    axes.annotate(f"{archived:,} in the archive", top, (-5, -3), ha="right", **note)
    axes.set_xlim(times[0], times[-1] + (times[-1] - times[0]) / 10)
    axes.set_ylim(0, entries[-1] * 1.05)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(labelsize=8, colors=_INK, length=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.6)
    _quiet(axes)
    _label_dates(axes, offset=True)
    axes.set_xlabel("entries so far, and files that there were (UTC)", **_SMALL)
    return figure


def to_png(figure: Any, path: Path) -> None:
    """Write the figure as PNG."""
    figure.savefig(path, format="png", dpi=150)


def to_svg(figure: Any) -> str:
    """Return the figure as an SVG element that can stand inside a page."""
    import matplotlib as mpl

    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "braidlog"}):
        # Without metadata, whose vocabularies would be the only addresses in the page.
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _figure(height: float, title: str) -> Any:
    try:
        figures: Any = import_module("matplotlib.figure")
    except ImportError:
        raise DemoError(
            "the plot needs matplotlib: pip install 'braidlog[demo]'"
        ) from None
    figure = figures.Figure(figsize=(11, height), layout="constrained")
    figure.suptitle(_plain(title), x=0.01, ha="left", color=_INK, weight="bold")
    return figure


def _draw_months(axes: Any, source: str, counts: Counter[str]) -> None:
    months = sorted(counts)
    axes.bar(list(map(_day, months)), [counts[m] for m in months], width=27, color=_BAR)
    busiest = max(months, key=lambda month: (counts[month], month))
    axes.set_title(
        f"{_plain(source)}: {counts.total():,} changes, "
        f"at most {counts[busiest]:,} a month ({busiest})",
        loc="left",
        fontsize=9,
        color=_INK,
    )
    axes.locator_params(axis="y", nbins=3, integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(labelsize=8, colors=_INK, length=0)
    axes.grid(axis="y", color=_GRID, linewidth=0.6)
    _quiet(axes)


def _draw_dates(axes: Any, months: set[str]) -> None:
    """Label the months; a short history still gets a year of room."""
    _label_dates(axes)
    first, last = _day(min(months)), _day(max(months))
    room = max(timedelta(days=20), (timedelta(days=360) - (last - first)) / 2)
    axes.set_xlim(first - room, last + room)
    axes.set_xlabel("changes per month (UTC)", **_SMALL)


def _label_dates(axes: Any, *, offset: bool = False) -> None:
    dates: Any = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator(maxticks=12)
    formatter = dates.ConciseDateFormatter(locator, show_offset=offset)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(formatter)
    axes.xaxis.get_offset_text().set_size(8)


def _draw_paths(axes: Any, top: Sequence[tuple[bytes, int]]) -> None:
    names = [_shorten(key) for key, _ in reversed(top)]
    counts = [count for _, count in reversed(top)]
    bars = axes.barh(range(len(top)), counts, color=_BAR, height=0.7)
    axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=8, color=_INK)
    axes.set_yticks(range(len(top)), names, fontsize=8)
    axes.set_title("paths changed most often", loc="left", fontsize=9, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK, left=False, bottom=False)
    axes.set_xticks([])
    _quiet(axes)
    axes.spines["bottom"].set_visible(False)


def _quiet(axes: Any) -> None:
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)


def _day(month: str) -> datetime:
    """Return the middle of a month; clocks of committers may be absurd."""
    year, number = month.split("-")
    return datetime(min(max(2, int(year)), 9000), int(number), 15, tzinfo=UTC)


def _shorten(key: bytes) -> str:
    name = shown(key)
    return _plain(
        name if len(name) <= _PATH_CHARACTERS else "…" + name[1 - _PATH_CHARACTERS :]
    )


def _plain(text: str) -> str:
    """Keep matplotlib from reading formulas between dollar signs."""
    return shown(text).replace("$", r"\$")
