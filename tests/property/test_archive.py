"""A log with an archive against a list, over any order of calls.

Trims never wait for readers: some are in the middle of the log when it is trimmed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

import braidlog
from braidlog import Record
from braidlog.errors import NotFoundError, TrimmedError
from property.test_embedded_log import HEADERS, KEYS, MEMORY, STAMPS, VALUES
from unit.archive.made import archive_log

ROWS = st.lists(st.tuples(VALUES, KEYS, STAMPS, HEADERS), min_size=1, max_size=40)
SHARE = st.floats(0, 1)


class LogWithArchive(RuleBasedStateMachine):
    """Calls both, compares."""

    def __init__(self) -> None:
        super().__init__()
        home = MEMORY if MEMORY.is_dir() else None
        self.home = Path(tempfile.mkdtemp(dir=home, prefix="braidlog-"))
        self.node = braidlog.open(self.home / "d", segment_bytes=256 << 10)
        self.log = self.node.create_log("log")
        self.follower = braidlog.open(self.home / "d", read_only=True)
        self.records: list[Record] = []
        self.archived = 1
        self.readers: list[tuple[Iterator[Record], int, int]] = []

    def teardown(self) -> None:
        self.follower.close()
        self.node.close()
        shutil.rmtree(self.home)

    @property
    def end(self) -> int:
        return len(self.records) + 1

    def at(self, share: float, low: int, high: int) -> int:
        return low + int(share * (high - low))

    @rule(rows=ROWS)
    def append(
        self, rows: list[tuple[bytes, bytes | None, int, list[tuple[str, bytes]]]]
    ) -> None:
        values, keys, stamps, headers = (list(c) for c in zip(*rows, strict=True))
        self.log.append_many(values, keys=keys, timestamps=stamps, headers=headers)
        self.records += [
            Record(self.end + at, stamp, key, value, tuple(named))
            for at, (value, key, stamp, named) in enumerate(rows)
        ]

    @rule(share=SHARE, parts=st.integers(1, 3))
    def archive(self, share: float, parts: int) -> None:
        end = self.at(share, self.archived, self.end)
        edges = {self.at(part / parts, self.archived, end) for part in range(parts + 1)}
        if len(edges) > 1:
            archive_log(self.log, self.home / "a", *sorted(edges))
            self.log.set_archive(self.home / "a")
            self.archived = end

    @rule(share=SHARE)
    def trim(self, share: float) -> None:
        self.log.trim(
            self.at(share, self.log.first, max(self.archived, self.log.first))
        )

    @rule(share=SHARE, some=st.integers(0, 30))
    def begin_to_read(self, share: float, some: int) -> None:
        begin = self.at(share, 1, self.end)
        if self.archived > 1:
            reader = self.log.read(begin, include_archive=True)
            self.readers.append((reader, begin, self.end))
            self.go_on(some)

    @rule(some=st.integers(0, 2000))
    def go_on(self, some: int) -> None:
        """Every reader gets what comes next, whatever was trimmed since."""
        for number, (reader, position, end) in enumerate(self.readers):
            for _ in range(min(some, end - position)):
                assert next(reader) == self.records[position - 1]
                position += 1
            self.readers[number] = reader, position, end
        for reader, position, end in self.readers:
            assert position < end or next(reader, None) is None
        self.readers = [row for row in self.readers if row[1] < row[2]]

    @rule(shares=st.tuples(SHARE, SHARE), key=KEYS, limit=st.none() | st.integers(0, 9))
    def read(
        self, shares: tuple[float, float], key: bytes | None, limit: int | None
    ) -> None:
        begin, end = sorted(self.at(share, 1, self.end) for share in shares)
        expected = self.records[begin - 1 : end - 1]
        if self.archived == 1:
            with pytest.raises(NotFoundError):
                self.log.read(include_archive=True)
            return
        for node in (self.node, self.follower):
            log = node.log("log")
            table = log.to_arrow(
                begin, end, columns=["value", "position"], include_archive=True
            )
            assert table["value"].to_pylist() == [r.value for r in expected]
            assert table["position"].to_pylist() == [r.position for r in expected]
            found = log.read(
                begin,
                end,
                key=key,
                since=0,
                until=30,
                limit=limit,
                include_archive=True,
            )
            wanted = [
                r
                for r in expected
                if 0 <= r.timestamp < 30 and (key is None or r.key == key)
            ]
            assert list(found) == wanted[:limit]

    @rule(gap=st.integers(1, 5))
    def lose(self, gap: int) -> None:
        """What neither has is said before anything is given out."""
        if not 1 < self.archived < self.end - gap:
            return
        with braidlog.open(self.home / "other") as node:
            log = node.create_log("log", exist_ok=True)
            log.append_many([b"x"] * 20)
            archive_log(log, self.home / log.id, log.end - 20, log.end - 10)
            log.trim(log.end - 10 + gap)
            place = self.home / log.id
            with pytest.raises(TrimmedError) as caught:
                log.read(log.end - 15, include_archive=place)
            assert caught.value.first == log.first
            assert len(list(log.read(log.first, include_archive=place))) == 10 - gap
        shutil.rmtree(self.home / "other")

    @invariant()
    def all_is_as_modelled(self) -> None:
        self.node.sync()
        if self.archived > 1:
            assert list(self.log.read(include_archive=True)) == self.records


@pytest.mark.timeout(180)
def test_the_log_with_its_archive_is_a_list() -> None:
    run_state_machine_as_test(
        LogWithArchive,
        settings=settings(
            max_examples=25,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
