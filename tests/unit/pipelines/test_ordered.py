"""A log spread over its partitions: each task gets its commands, their outcomes."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.app.execution.entries import Command, Entry, Host, Outcomes, pack, unpack
from braidlog.app.replay.prescan import Survey
from braidlog.client.arrow import log_schema
from braidlog.pipelines import ordered
from braidlog.pipelines.job import Attempt
from braidlog.pipelines.ordered import (
    COLUMNS,
    OrderedInput,
    PartitionSorter,
    records_of,
)
from braidlog.pipelines.shuffle import ShuffleRange, ShuffleWriter, split_at
from unit.pipelines.works import EMPTY

COUNT = 10
"""Partitions; those with the same remainder of 3 belong together."""


def command(partitions: list[int] | None) -> Command:
    return Command(b"\0" * 16, b"", "pay", b"", partitions, [])


def digest(position: int) -> bytes:
    return position.to_bytes(21, "big")


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Commands within groups, hosts, and outcomes of some commands before."""
    entries: list[Entry] = []
    waiting: list[int] = []
    for position in range(1, draw(st.integers(1, 60)) + 1):
        kind = draw(st.integers(0, 9))
        if kind == 0:
            entries.append(Host(b"h", position))
        elif kind < 3:
            told, waiting = waiting, draw(st.sampled_from([[], waiting[-2:]]))
            told = [at for at in told if at not in waiting]
            entries.append(Outcomes(1, [(at, digest(at)) for at in told]))
        else:
            group = draw(st.integers(0, 2))
            mine = st.sampled_from(range(group, COUNT, 3))
            entries.append(command(draw(st.lists(mine, min_size=1, max_size=3))))
            waiting.append(position)
    return entries


def ordered_by_stage(
    home: Path, entries: list[Entry], cuts: list[int], held: int
) -> list[ShuffleRange]:
    """Do what the first stage does, in ranges and batches of three."""
    rows = [(at, at * 10, pack(entry)) for at, entry in enumerate(entries, 1)]
    shuffle = []
    for number, (begin, end) in enumerate(pairwise([0, *cuts, len(rows)])):
        spread = PartitionSorter(COUNT, None)
        into = ShuffleWriter(
            Attempt(0, str(number), home, home),
            spread.parts,
            split=split_at,
            held_bytes=held,
        )
        survey = Survey(EMPTY, watch=spread.see)
        for at in range(begin, end, 3):
            columns = list(zip(*rows[at : min(at + 3, end)], strict=True))
            schema = log_schema(list(COLUMNS))
            arrays = [
                pa.array(values).cast(field.type)
                for values, field in zip(columns, schema, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            survey.add(records_of(batch))
            into.add(spread.sort(batch))
        into.finish()
        made = zip(into.files, into.spans, strict=True)
        shuffle += [ShuffleRange(file.path, *span) for file, span in made]
    return shuffle


@settings(max_examples=40, deadline=None)
@given(logs(), st.data())
def test_each_group_gets_its_own(entries: list[Entry], data: st.DataObject) -> None:
    last = len(entries)
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, last - 1)), max_size=3)))
    held = data.draw(st.sampled_from([1, 300, 1 << 20]))
    begin = data.draw(st.integers(1, last))
    end = data.draw(st.none() | st.integers(begin, last + 1))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "_WINDOW", data.draw(st.sampled_from([2, 1000])))
        shuffle = ordered_by_stage(
            Path(name), entries, [c for c in cuts if c < last], held
        )
        for group in range(3):
            mine = [n for n in range(COUNT) if n % 3 == group]
            parts = [*mine, COUNT, COUNT + 1]
            source = OrderedInput("log", Path(name), shuffle, parts)
            found = list(source.records(begin, end))
            positions = [record.position for record in found]
            assert positions == sorted(set(positions))
            seen = {each.position: unpack(each.value, each.position) for each in found}
            assert all(each.timestamp == each.position * 10 for each in found)
            for at, entry in enumerate(entries, 1):
                inside = begin <= at < (end or last + 1)
                if isinstance(entry, Outcomes):
                    # Of its own commands all; of others perhaps some.
                    told = seen.get(at)
                    got = set(map(tuple, told.digests)) if told else set()  # type: ignore[union-attr]
                    own = {
                        (at, digest)
                        for at, digest in entry.digests
                        if entries[at - 1].partitions[0] % 3 == group  # type: ignore[union-attr, index]
                    }
                    assert not inside or own <= got <= set(entry.digests)
                elif isinstance(entry, Command):
                    theirs = entry.partitions[0] % 3 == group  # type: ignore[index]
                    assert seen.get(at) == (entry if inside and theirs else None)
                else:
                    assert seen.get(at) == (entry if inside else None)


def test_outcomes_of_a_range_reach_nobody_else(tmp_path: Path) -> None:
    """Else each task would decode the outcomes of the whole log."""
    entries: list[Entry] = [command([n % COUNT]) for n in range(100)]
    entries.append(Outcomes(1, [(at, digest(at)) for at in range(1, 101)]))
    shuffle = ordered_by_stage(tmp_path, entries, [], 1 << 20)
    for_all = OrderedInput("log", tmp_path, shuffle, [COUNT, COUNT + 1])
    assert list(for_all.records(None)) == []
    [*_, told] = OrderedInput("log", tmp_path, shuffle, [3, 4]).records(None)
    entry = unpack(told.value, told.position)
    assert isinstance(entry, Outcomes)
    assert [at % COUNT for at, _ in entry.digests] == [4, 5] * 10


def test_all_partitions_are_those_of_one_task(tmp_path: Path) -> None:
    shuffle = ordered_by_stage(tmp_path, [command(None)], [], 1)
    assert len(list(OrderedInput("log", tmp_path, shuffle, [0]).records(None))) == 1
    assert (
        list(OrderedInput("log", tmp_path, shuffle, range(1, COUNT + 2)).records(1))
        == []
    )
