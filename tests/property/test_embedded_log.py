"""The embedded log against lists, over any order of calls and reopens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
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
from braidlog import Log, Producer, Record
from braidlog.errors import (
    BeyondEndError,
    NotFoundError,
    PositionError,
    SequenceGapError,
    TrimmedError,
)

MEMORY = Path("/dev/shm")  # noqa: S108, RUF100
NAMES = st.sampled_from(["a", "b", "ü"])
VALUES = st.one_of(
    st.binary(max_size=30),
    st.integers(1, 60_000).map(lambda n: n.to_bytes(4, "little") + bytes(n)),
)
KEYS = st.none() | st.sampled_from([b"", b"k", b"key"])
STAMPS = st.integers(-5, 50)
HEADERS = st.lists(
    st.tuples(st.sampled_from(["h", "ü"]), st.binary(max_size=3)), max_size=3
)
ROWS = st.lists(st.tuples(VALUES, KEYS, STAMPS, HEADERS), max_size=30)

Row = tuple[bytes, bytes | None, int, list[tuple[str, bytes]]]


class Model:
    """A log that is a list: row `i` has position `i + 1`."""

    def __init__(self, log_id: str) -> None:
        self.id = log_id
        self.rows: list[Row] = []
        self.first = 1
        self.cursors: dict[str, tuple[int, bool]] = {}
        self.sequence = 1

    @property
    def end(self) -> int:
        return len(self.rows) + 1

    def record(self, position: int) -> Record:
        value, key, stamp, headers = self.rows[position - 1]
        return Record(position, stamp, key, value, tuple(headers))

    def records(self) -> list[Record]:
        return [self.record(position) for position in range(self.first, self.end)]


class EmbeddedLog(RuleBasedStateMachine):
    """Calls both, compares."""

    def __init__(self) -> None:
        super().__init__()
        home = MEMORY if MEMORY.is_dir() else None
        self.home = Path(tempfile.mkdtemp(dir=home, prefix="braidlog-"))
        self.logs: dict[str, Model] = {}
        self.deleted: list[Log] = []
        self.options: dict[str, Any] = {"segment_bytes": 256 << 10}
        self.node = braidlog.open(self.home / "d", **self.options)
        self.follower = braidlog.open(self.home / "d", read_only=True)

    def teardown(self) -> None:
        self.follower.close()
        self.node.close()
        shutil.rmtree(self.home)

    def pick(self, name: str) -> tuple[Log, Model]:
        if name not in self.logs:
            compression = {"a": "none", "b": "zstd", "ü": "lz4"}[name]
            log = self.node.create_log(name, compression=compression)  # type: ignore[arg-type]
            self.logs[name] = Model(log.id)
        log, model = self.node.log(name), self.logs[name]
        assert log.id == model.id
        return log, model

    @rule(name=NAMES, row=st.tuples(VALUES, KEYS, STAMPS, HEADERS), wait=st.booleans())
    def append(self, name: str, row: Row, wait: bool) -> None:
        log, model = self.pick(name)
        value, key, stamp, headers = row
        options: dict[str, Any] = {"key": key, "timestamp": stamp, "headers": headers}
        if wait:
            assert log.append(value, **options) == model.end
        else:
            assert log.submit(value, **options).position == model.end
        model.rows.append(row)

    @rule(name=NAMES, rows=ROWS, arrow=st.booleans(), wait=st.booleans())
    def append_rows(self, name: str, rows: list[Row], arrow: bool, wait: bool) -> None:
        log, model = self.pick(name)
        values, keys = [row[0] for row in rows], [row[1] for row in rows]
        stamps, headers = [row[2] for row in rows], [row[3] for row in rows]
        if arrow:
            columns = {
                "value": pa.array(values, pa.binary()),
                "key": pa.array(keys, pa.binary()),
                "timestamp": pa.array(stamps, pa.int64()),
                "headers": pa.array(headers, pa.map_(pa.string(), pa.binary())),
            }
            pending = log.submit_arrow(pa.table(columns))
        else:
            pending = log.submit_many(
                values, keys=keys, timestamps=stamps, headers=headers
            )
        if wait:
            assert pending.result() == range(model.end, model.end + len(rows))
        model.rows += rows

    @rule(name=NAMES, count=st.integers(1, 5), back=st.integers(0, 3))
    def append_once(self, name: str, count: int, back: int) -> None:
        log, model = self.pick(name)
        producer = Producer(1)
        assert log.next_sequence(producer) == model.sequence
        with pytest.raises(SequenceGapError):
            log.append(b"gap", producer=producer, sequence=model.sequence + 1 + back)
        for _ in range(2):
            sequence = model.sequence
            found = log.append_many(
                [b"once"] * count, producer=producer, sequence=sequence, timestamps=5
            )
            assert found == range(model.end, model.end + count)
        model.rows += [(b"once", None, 5, [])] * count
        model.sequence += count

    @rule(name=NAMES, share=st.floats(0, 1), ignore=st.booleans())
    def trim(self, name: str, share: float, ignore: bool) -> None:
        log, model = self.pick(name)
        before = 1 + int(share * (model.end - 1))
        pins = [position for position, pin in model.cursors.values() if pin]
        wish = before if ignore else min([before, *pins])
        model.first = max(model.first, wish)
        assert log.trim(before, ignore_pins=ignore) == model.first
        with pytest.raises(BeyondEndError):
            log.trim(model.end + 1, ignore_pins=True)

    @rule(name=NAMES, cursor=st.sampled_from("xy"), pin=st.booleans())
    def open_cursor(self, name: str, cursor: str, pin: bool) -> None:
        log, model = self.pick(name)
        self.node.sync()
        model.cursors.setdefault(cursor, (model.first, pin))
        found = log.cursor(cursor, pin=pin)
        assert (found.position, found.pin) == model.cursors[cursor]

    @rule(name=NAMES, share=st.floats(0, 1), delete=st.booleans())
    def move_cursors(self, name: str, share: float, delete: bool) -> None:
        log, model = self.pick(name)
        self.node.sync()
        for cursor in log.cursors():
            position = 1 + int(share * (model.end - 1))
            if delete:
                cursor.delete()
                del model.cursors[cursor.name]
            else:
                cursor.commit(position)
                _, pin = model.cursors[cursor.name]
                model.cursors[cursor.name] = (position, pin)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        log, _ = self.pick(name)
        self.node.delete_log(name)
        del self.logs[name]
        for call in (lambda: log.append(b""), lambda: log.end, log.read):
            with pytest.raises(NotFoundError):
                call()

    @rule(
        depth=st.sampled_from([0, 4096, 32 << 20]), recent=st.sampled_from([0, 1 << 20])
    )
    def reopen(self, depth: int, recent: int) -> None:
        self.node.close()
        self.node = braidlog.open(
            self.home / "d", unsynced_bytes_max=depth, recent_bytes_max=recent
        )
        assert self.node.report["clean"]

    @rule()
    def keep_house(self) -> None:
        self.node.maintain()

    @rule(name=NAMES, shares=st.tuples(st.floats(0, 1), st.floats(0, 1)), key=KEYS)
    def read_some(
        self, name: str, shares: tuple[float, float], key: bytes | None
    ) -> None:
        _, model = self.pick(name)
        self.node.sync()
        length = model.end - model.first
        begin, end = sorted(model.first + int(share * length) for share in shares)
        expected = [model.record(position) for position in range(begin, end)]
        for node in (self.node, self.follower):
            log = node.log(name)
            assert list(log.read(begin, end)) == expected
            assert list(log.read(begin, end, reverse=True)) == expected[::-1]
            assert list(log[begin:end]) == expected
            found = log.to_arrow(begin, end, columns=["position", "value"])
            assert found["value"].to_pylist() == [r.value for r in expected]
            assert found["position"].to_pylist() == [r.position for r in expected]
            if key is not None:
                chosen = [r for r in expected if r.key == key]
                assert list(log.read(begin, end, key=key)) == chosen
            chosen = [r for r in expected if 3 <= r.timestamp < 30]
            assert list(log.read(begin, end, since=3, until=30)) == chosen
            for position in {begin, end, model.first - 1, model.end}:
                if position < model.first:
                    with pytest.raises(TrimmedError if position else PositionError):
                        log.get(position)
                elif position >= model.end:
                    with pytest.raises(BeyondEndError):
                        log.get(position)
                else:
                    assert log.get(position) == model.record(position)

    @rule(name=NAMES, stamp=STAMPS)
    def find(self, name: str, stamp: int) -> None:
        log, model = self.pick(name)
        self.node.sync()
        found = [r.position for r in model.records() if r.timestamp >= stamp]
        assert log.find(stamp) == (found[0] if found else None)

    @invariant()
    def all_is_as_modelled(self) -> None:
        assert self.node.logs() == sorted(self.logs)
        self.node.sync()
        for name, model in self.logs.items():
            for node in (self.node, self.follower):
                log = node.log(name)
                assert (log.first, log.end) == (model.first, model.end)
                stamps = [record.timestamp for record in model.records()]
                assert log.first_timestamp() == (stamps[0] if stamps else None)
                found = {c.name: (c.position, c.pin) for c in log.cursors()}
                assert found == model.cursors
            assert list(log) == model.records()


@pytest.mark.timeout(180)
def test_the_embedded_log_is_a_list() -> None:
    run_state_machine_as_test(
        EmbeddedLog,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
