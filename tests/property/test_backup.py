"""Chains of backups against copies of a model, over any order of calls and reopens."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import braidlog
from braidlog import Producer
from braidlog.backup import backups, damaged, delete, restore, verify
from braidlog.backup import directory as directories
from braidlog.testing import MemoryStore

MEMORY = Path("/dev/shm")  # noqa: S108, RUF100
NAMES = st.sampled_from(["a", "b", "ü"])
VALUES = st.binary(max_size=30) | st.integers(1, 12_000).map(bytes)
KEYS = st.none() | st.sampled_from([b"", b"k"])
ROWS = st.lists(st.tuples(VALUES, KEYS, st.integers(-5, 50)), min_size=1, max_size=20)
IDS = st.integers(1, 3)
LONG = 8000


class Model:
    """A log that is a list: row `i` has position `i + 1`."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.first = 1
        self.cursors: dict[str, tuple[int, bool]] = {}
        self.next: dict[int, int] = {}
        self.retention: int | None = None
        self.begin: int | None = None
        """First position that its table counts, if there is one."""

    @property
    def end(self) -> int:
        return len(self.rows) + 1


class Chain(RuleBasedStateMachine):
    """A store in memory, its model, and what each backup has to give back."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.place = self.root / "place"
        self.store = MemoryStore(segment_bytes=64 << 10, wal_bytes_max=8 << 20)
        self.logs: dict[str, Model] = {}
        self.kept: dict[str, dict[str, Model]] = {}

    def teardown(self) -> None:
        try:
            assert damaged(self.place) == {}
            assert {each.id for each in backups(self.place)} == set(self.kept)
            for number, (name, logs) in enumerate(self.kept.items()):
                self.check(name, logs, self.root / f"restored{number}")
        finally:
            self.store.close()
            shutil.rmtree(self.root)

    def check(self, name: str, logs: dict[str, Model], target: Path) -> None:
        assert verify(self.place, name).findings == []
        restore(self.place, target, name)
        with braidlog.open(target) as store:
            assert store.logs() == sorted(logs)
            for log_name, model in logs.items():
                log = store.log(log_name)
                assert (log.first, log.end) == (model.first, model.end)
                found = [(r.value, r.key, r.timestamp) for r in log.read()]
                assert found == model.rows[model.first - 1 :]
                of_logs = [c for c in log.cursors() if not c.name.startswith("table:")]
                cursors = {c.name: (c.position, c.pin) for c in of_logs}
                assert cursors == model.cursors
                assert log.options.retention_ms == model.retention
                for who, following in model.next.items():
                    assert log.next_sequence(Producer(who)) == following
                self.check_table(store, log_name, model)
                assert log.append(b"more") == model.end
            assert len(store.tables()) == sum(
                m.begin is not None for m in logs.values()
            )

    def check_table(self, store: braidlog.Store, name: str, model: Model) -> None:
        if model.begin is None:
            return
        table = store.table(name)
        rows = enumerate(model.rows, 1)
        last = {
            row[1]: at for at, row in rows if row[1] is not None and at >= model.begin
        }
        assert {record.key: record.position for record in table} == last
        indexed = table.index("by_value").scan()
        found = {record.position for record in indexed}
        # Longer ones have too long a key of the index, and are counted.
        short = {at for at in last.values() if len(model.rows[at - 1][0]) < LONG}
        assert short <= found <= set(last.values())
        table.verify()

    def log(self, name: str) -> tuple[braidlog.Log, Model]:
        model = self.logs.setdefault(name, Model())
        return self.store.create_log(name, exist_ok=True), model

    @rule(name=NAMES, rows=ROWS)
    def append(self, name: str, rows: list[Any]) -> None:
        log, model = self.log(name)
        values, keys, stamps = zip(*rows, strict=True)
        log.append_many(values, keys=keys, timestamps=stamps)
        model.rows += rows

    @rule(name=NAMES, rows=ROWS, who=IDS)
    def produce(self, name: str, rows: list[Any], who: int) -> None:
        log, model = self.log(name)
        sequence = model.next.get(who, 1)
        values, keys, stamps = zip(*rows, strict=True)
        log.append_many(
            values,
            keys=keys,
            timestamps=stamps,
            producer=Producer(who),
            sequence=sequence,
        )
        model.rows += rows
        model.next[who] = sequence + len(rows)

    @rule(name=NAMES, part=st.floats(0, 1))
    def trim(self, name: str, part: float) -> None:
        log, model = self.log(name)
        before = model.first + round(part * (model.end - model.first))
        pins = [at for at, pin in model.cursors.values() if pin]
        wanted = max(model.first, min([before, *pins]))
        first = log.trim(before=before)
        # A table holds what it has in no file.
        assert model.first <= first <= wanted
        assert first == wanted or model.begin is not None
        model.first = first

    @rule(name=NAMES, part=st.floats(0, 1))
    def keep_table(self, name: str, part: float) -> None:
        _, model = self.log(name)
        if model.begin is None:
            model.begin = model.first + round(part * (model.end - model.first))
            self.store.create_table(
                name, log=name, indexes={"by_value": "value"}, begin=model.begin
            )

    @rule(name=NAMES, compact=st.booleans())
    def flush(self, name: str, compact: bool) -> None:
        _, model = self.log(name)
        if model.begin is not None:
            self.store.table(name).flush()
            host = self.store._table_host()
            native = host.native(host.entry(name))._native
            while compact and native.compact():
                pass

    @rule(name=NAMES, cursor=st.sampled_from("cd"), part=st.floats(0, 1))
    def commit(self, name: str, cursor: str, part: float) -> None:
        log, model = self.log(name)
        pin = cursor == "d"
        at = model.first + round(part * (model.end - model.first))
        log.set_cursor(cursor, at, pin=pin)
        model.cursors[cursor] = (at, pin)

    @rule(name=NAMES, age=st.none() | st.integers(10**15, 10**15 + 9))
    def retain(self, name: str, age: int | None) -> None:
        log, model = self.log(name)
        log.set_options(retention_ms=age)
        model.retention = age

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        _, model = self.log(name)
        if model.begin is not None:
            self.store.drop_table(name)
        self.store.delete_log(name)
        del self.logs[name]

    @rule()
    def reopen(self) -> None:
        self.store = self.store.reopen()

    @rule(data=st.data())
    def back_up(self, data: st.DataObject) -> None:
        known = [None, None, "none", *self.kept]
        base = data.draw(st.sampled_from(known), label="base")
        made = self.store.backup(self.place, base=base)
        self.kept[made.id] = copy.deepcopy(self.logs)

    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        if self.kept:
            name = data.draw(st.sampled_from(sorted(self.kept)), label="backup")
            delete(self.place, name)
            del self.kept[name]


@pytest.mark.timeout(240)
def test_what_is_restored_is_what_was_backed_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Many parts, some of them small.
    monkeypatch.setattr(directories, "PART_BYTES", 9000)
    monkeypatch.setattr(directories, "_CHUNK_BYTES", 3000)
    monkeypatch.setattr(directories, "SMALL_BYTES", 2000)
    run_state_machine_as_test(
        Chain,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
