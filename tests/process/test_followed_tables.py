"""A process writes a table, another one reads it: each answer is a state of the log."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import TrimmedError
from braidlog.store.tables.table import Table
from process.followed_table import record, state

pytestmark = pytest.mark.process

RECORDS = 3000


def start(data: Path) -> subprocess.Popen[str]:
    program = Path(__file__).parent / "followed_table.py"
    return subprocess.Popen(
        [sys.executable, str(program), str(data), str(RECORDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def look(table: Table, last: int) -> int:
    """Read the table in each way; return the position that was seen, never an older."""
    with table.at() as snapshot:
        position = snapshot.position
        assert position >= last
        expected = state(position)
        try:
            found = {each.key: each.position for each in snapshot}
            groups = [
                (int(each.value[each.value.rindex(b":") + 1 : -1]), each.key)
                for each in snapshot.index("by_group")
                if each.value is not None
            ]
            arrow = snapshot.to_arrow(columns=["position"])["position"].to_pylist()
        except TrimmedError:
            # The writer merged what was not open yet; the next look is of now.
            return position
    assert found == expected
    assert sorted(arrow) == sorted(expected.values())
    ordered = sorted((n % 5, key) for key, n in expected.items())
    assert groups == ordered
    return position


def test_a_reader_beside_a_writer_sees_states_of_the_log(tmp_path: Path) -> None:
    data = tmp_path / "data"
    writer = start(data)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline().strip() == "50"
        last = looks = 0
        with braidlog.open(data, read_only=True) as reader:
            table = reader.table("keys")
            while last < RECORDS:
                assert writer.poll() is None
                acknowledged = reader.log("events").end - 1
                last = look(table, last)
                assert last >= acknowledged
                looks += 1
                # What is looked up one by one is never older than that.
                key, value = record(max(last, 1))
                found = table.get(key)
                assert found is None or found.position >= last or value == b""
            assert looks > 3
    finally:
        writer.kill()
        writer.communicate()


def test_readers_go_on_while_the_writer_is_killed_and_started(tmp_path: Path) -> None:
    data = tmp_path / "data"
    last = 0
    reader = table = None
    for _ in range(4):
        writer = start(data)
        try:
            assert writer.stdout is not None
            for _ in range(6):
                said = writer.stdout.readline().strip()
                if reader is None:
                    reader = braidlog.open(data, read_only=True)
                    table = reader.table("keys")
                assert table is not None
                last = look(table, last)
                if said == "done":
                    break
                assert last >= int(said)
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        # Nobody writes.
        assert table is not None
        last = look(table, last)
        table.verify()
    assert reader is not None
    reader.close()
    assert last > 500
