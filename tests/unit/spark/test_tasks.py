"""Plans of several streams, against a log that is a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from braidlog.sources.plan import Extent
from braidlog.sources.source import ALL_STREAMS, Look
from braidlog.spark.source.selection import Range, Selection
from braidlog.spark.source.tasks import Order, Task, plan_tasks


@dataclass(frozen=True)
class Listed(Look):
    """A log that is the list of the streams of its records."""

    streams: list[int]
    first: int = 1
    id: str = "id"

    def __post_init__(self) -> None:
        object.__setattr__(self, "end", len(self.streams) + 1)

    def cut(self, position: int) -> dict[int, int]:
        before = self.streams[: position - 1]
        return {s: before.count(s) + 1 for s in sorted(set(self.streams))}

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        return {
            stream: [Extent(begin[stream], stop, 10 * (stop - begin[stream]))]
            for stream, stop in end.items()
            if begin[stream] < stop
        }

    def positions(self, task: Task) -> list[int]:
        if task.stream == ALL_STREAMS:
            return list(range(task.begin, task.end))
        of = [n for n, stream in enumerate(self.streams, 1) if stream == task.stream]
        return of[task.begin - 1 : task.end - 1]


@given(
    st.lists(st.integers(1, 3), max_size=40),
    st.integers(1, 5),
    st.tuples(st.none() | st.integers(1, 45), st.none() | st.integers(1, 45)),
    st.none() | st.frozensets(st.integers(1, 4)),
    st.sampled_from(["stream", "global"]),
    st.integers(1, 200),
)
def test_tasks_hold_what_is_asked_for_once(
    streams: list[int],
    first: int,
    bounds: tuple[int | None, int | None],
    among: frozenset[int] | None,
    order: Order,
    size: int,
) -> None:
    log: Any = Listed(streams, min(first, len(streams) + 1))
    selection = Selection(Range(*bounds), stream=Range(among=among))
    tasks = plan_tasks(log, selection, order, size)
    found = [n for task in tasks for n in log.positions(task)]
    asked = [
        n
        for n, stream in enumerate(streams, 1)
        if n >= log.first
        and n in selection.position
        and (order == "global" or stream in selection.stream)
    ]
    assert sorted(found) == asked
    if order == "global":
        assert found == asked
    for stream in set(streams):
        of = [(t.begin, t.end) for t in tasks if t.stream == stream]
        assert of == sorted(of)
    assert [task.turn for task in tasks] == list(range(len(tasks)))


def test_tasks_take_turns_with_the_streams() -> None:
    log: Any = Listed([1, 2] * 10 + [2] * 10)
    tasks = plan_tasks(log, Selection(), "stream", 50)
    assert [task.stream for task in tasks] == [1, 2, 1, 2, 2, 2]
