"""Replay of some partitions alone, and which of them belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.app import Application
from braidlog.app.execution.entries import Command
from braidlog.app.replay.prescan import Survey
from braidlog.app.replay.run import Replayed, replay
from braidlog.errors import InvalidArgumentError
from unit.app.banking import make_bank
from unit.app.logs import ListInput, history
from unit.app.records import Records


@pytest.fixture
def log() -> Records:
    return history(make_bank(results_kept=40), 300)


def again(log: Records, path: Path, **options: Any) -> Replayed:
    return replay(log.application, ListInput(log.records), path, **options)


def partitioned(bank: Application, commands: int) -> Records:
    """A log whose transfers stay within the even or within the odd partitions."""
    log = Records(bank)
    deposit = bank.find("deposit")
    where = {a: deposit.partitions([a, 0], bank.partitions) for a in range(60)}
    for number in range(commands):
        one = number * 7 % 60
        two = (number * 11 + 3) % 60
        log.command("deposit", one, 100)
        [a], [b] = where[one] or [0], where[two] or [0]
        if a % 2 == b % 2 and one != two:
            log.command("transfer", one, two, 30)
    return log


def test_disjoint_partitions_give_the_hashes_of_all(tmp_path: Path) -> None:
    log = partitioned(make_bank(partitions=4), 200)
    whole = again(log, tmp_path / "whole").hashes
    even = again(log, tmp_path / "even", partitions={0, 2}, across="refuse")
    odd = again(log, tmp_path / "odd", partitions={1}, across="include")
    assert sorted(even.hashes) == [0, 2]
    assert sorted(odd.hashes) == [1, 3]
    assert {**even.hashes, **odd.hashes} == whole
    assert even.commands + odd.commands == again(log, tmp_path / "w").commands
    # Beside the partition 0, which has what belongs to all, and none of its rows.
    names = sorted(path.name for path in (tmp_path / "odd").glob("*.db"))
    assert names == [f"partition-000{n}.db" for n in (0, 1, 3)]


def test_a_part_goes_on_as_that_part(tmp_path: Path) -> None:
    log = partitioned(make_bank(partitions=4), 200)
    again(log, tmp_path / "odd", partitions={1, 3}, until=100)
    done = again(log, tmp_path / "odd", partitions={1, 3})
    assert done.start == 100
    assert done.hashes == again(log, tmp_path / "other", partitions={1, 3}).hashes
    with pytest.raises(InvalidArgumentError, match=r"of partitions \[1, 3\], not"):
        again(log, tmp_path / "odd")


def test_commands_that_reach_out_of_the_partitions(
    log: Records, tmp_path: Path
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"\[0\] also touch \[1, 2\]"):
        again(log, tmp_path / "again", partitions={0}, across="refuse")
    assert sorted(again(log, tmp_path / "again", partitions={0}).hashes) == [0, 1, 2]
    for wrong in (set(), {3}, {-1}):
        with pytest.raises(InvalidArgumentError, match="partitions are 0 to 2"):
            again(log, tmp_path / "wrong", partitions=wrong)


@settings(deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 7), min_size=1), max_size=8),
    st.sets(st.integers(0, 7), min_size=1),
)
def test_partitions_that_belong_together(
    commands: list[set[int]], wanted: set[int]
) -> None:
    """Against a loop that adds what commands touch until nothing is added."""
    log = Records(make_bank(partitions=8))
    template = log.application.find("deposit")
    for touched in commands:
        call = log.call_id()
        log.add(Command(call, call[:16], "deposit", template.content, [*touched], []))
    survey = Survey(log.application)
    survey.add(log.records)
    closed = set(wanted)
    while more := {n for touched in commands if touched & closed for n in touched}:
        if more <= closed:
            break
        closed |= more
    assert survey.closed(wanted) == closed
    groups = survey.groups()
    assert sorted(n for group in groups for n in group) == list(range(8))
