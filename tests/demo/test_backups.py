"""Backups of the recorded changes: restored, they give the file trees of the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.demo.events import Tree, decode, key_of
from examples.demo.files import read_lines, read_oracle
from examples.demo.options import LOG
from examples.demo.pasts import TABLE, keep_table, trees_of
from examples.demo.replay import Replay, compare

import braidlog
from braidlog.backup import backups, restore, verify
from braidlog.backup import directory as directories
from demo.test_real_data import fewer


def replayed(log: braidlog.Log) -> Replay:
    replay = Replay()
    replay.feed((r.position, r.timestamp, r.key, r.value) for r in log.read())
    return replay


def batched(lines: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    while batch := list(itertools.islice(lines, size)):
        yield batch


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_restored_changes_equal_the_oracle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the part of the first backup nothing is copied again.
    monkeypatch.setattr(directories, "SMALL_BYTES", 1)
    events, oracle, count = fewer(tmp_path)
    place = tmp_path / "backups"
    with braidlog.open(tmp_path / "data", segment_bytes=4 << 20) as store:
        log = store.create_log("changes", compression="zstd")
        half = None
        for lines in batched(read_lines(events), 1000):
            found = [decode(line) for line in lines]
            log.append_many(
                lines,
                keys=[key_of(event) for event in found],
                timestamps=[event.ts * 1_000_000 for event in found],
            )
            if half is None and log.end > count // 2:
                half = replayed(log)
                store.backup(place)
        store.backup(place)
    middle, last = backups(place)
    assert (middle.records, last.records) == (half and half.records, count)
    assert last.base == middle.id
    expected = read_oracle(oracle)
    for each in (middle, last):
        assert verify(place, each.id).findings == []
        target = tmp_path / each.id
        restore(place, target, each.id)
        with braidlog.open(target) as other:
            replay = replayed(other.log("changes"))
            if each is middle:
                assert half is not None
                assert replay.digest == half.digest
            else:
                assert list(compare(expected, replay.trees)) == []
                assert (replay.records, replay.lost, replay.mismatched) == (count, 0, 0)


def trees(table: Any) -> dict[str, Tree]:
    return trees_of(table.scan())


@pytest.mark.real_data
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_restored_table_catches_up_with_the_oracle(tmp_path: Path) -> None:
    """A table of source and path, from a backup that was taken in the middle."""
    events, oracle, count = fewer(tmp_path)
    place, expected = tmp_path / "backups", read_oracle(oracle)

    def append(log: braidlog.Log, skip: int, left: int) -> None:
        lines = itertools.islice(read_lines(events, skip), left)
        for batch in batched(lines, 1000):
            log.append_many(batch, keys=[key_of(decode(line)) for line in batch])

    half = count // 2
    with braidlog.open(tmp_path / "data", segment_bytes=4 << 20) as store:
        log = store.create_log(LOG, compression="zstd")
        table = keep_table(store)
        append(log, 0, half - 1000)
        table.flush()
        append(log, half - 1000, 1000)
        middle = trees(table)
        # What the table has in files is in it alone.
        log.trim(before=half - 1000)
        made = store.backup(place)
    assert made.tables[0].files
    target = tmp_path / "restored"
    assert verify(place).findings == []
    restore(place, target)
    with braidlog.open(target) as other:
        again = other.table(TABLE)
        assert trees(again) == middle
        append(other.log(LOG), half, count)
        assert trees(again) == expected
        with again.at(half) as snapshot:
            assert trees_of(snapshot) == middle
        again.verify()
        other.backup(place)
    restore(place, tmp_path / "last")
    with braidlog.open(tmp_path / "last") as last:
        assert trees(last.table(TABLE)) == expected
