"""What a leader adds to commands of clients, and what it has no room for."""

from __future__ import annotations

import pytest

from braidlog.errors import (
    InvalidArgumentError,
    LogError,
    MetadataFullError,
    NotFoundError,
)
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import (
    CALL_BYTES_MAX,
    CALLS_MAX,
    CursorState,
    encode_state,
)
from braidlog.raft import Stored
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.results import Created, CursorRow, Done, Trimmed
from unit.metarepo.bench import LOG
from unit.metarepo.test_group import Lone, told

SECOND = 1_000_000
HOUR = 3600 * SECOND


def error_of(lone: Lone, command: Command) -> LogError | None:
    answer = lone.do(command)
    assert answer is not None
    return answer.error


def written(records: int) -> Lone:
    lone = Lone().prepared()
    lone.tell(told(records + 1))
    assert lone.group.repository.state.logs[LOG].high_watermark == records
    lone.wall = HOUR
    return lone


# -- time ------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [2 * HOUR, -2 * HOUR])
def test_a_lease_goes_by_the_clock_of_the_leader(ahead: int) -> None:
    """Whatever a client says of the time: neither who pins, nor who trims."""
    lone = written(9)
    pin = commands.SetCursor(LOG, "reader", 4, True, 60 * SECOND, HOUR - ahead)
    assert lone.result(pin) == Done(HOUR)
    trim = commands.Trim(LOG, 9, HOUR + ahead)
    assert lone.result(trim) == Trimmed(4)
    lone.wall += 59 * SECOND
    assert lone.result(trim) == Trimmed(4)
    lone.wall += SECOND
    assert lone.result(trim) == Trimmed(9)


def led_by_another(before: Lone, ahead: int) -> Lone:
    """Another leader, whose clock is ahead by so much."""
    lone = Lone(Stored(before.base, tuple(before.entries), before.hard))
    lone.wall = before.wall + ahead
    return lone


def pass_time(lone: Lone, seconds: int) -> None:
    lone.wait(seconds)
    lone.wall += seconds * SECOND


@pytest.mark.parametrize("ahead", [0, 2 * HOUR])
def test_a_lease_holds_for_its_whole_time_under_another_leader(ahead: int) -> None:
    first = written(9)
    first.result(commands.SetCursor(LOG, "ended", 2, True, SECOND))
    first.wall += 2 * SECOND
    first.result(commands.SetCursor(LOG, "reader", 4, True, 60 * SECOND))
    lone = led_by_another(first, ahead)
    assert lone.result(commands.Trim(LOG, 9)) == Trimmed(4)
    lone.result(commands.SetCursor(LOG, "other", 6, True, 90 * SECOND))
    pass_time(lone, 57)
    assert lone.result(commands.Trim(LOG, 9)) == Trimmed(4)
    assert lone.result(commands.Retain(1, b"", 9)) == Trimmed(4)
    pass_time(lone, 3)
    assert lone.result(commands.Trim(LOG, 9)) == Trimmed(6)
    pass_time(lone, 30)
    assert lone.result(commands.Trim(LOG, 9)) == Trimmed(9)


def test_a_leader_whose_clock_is_behind_ends_no_lease_early() -> None:
    first = written(9)
    first.result(commands.SetCursor(LOG, "reader", 4, True, 60 * SECOND))
    lone = led_by_another(first, -HOUR // 2)
    pass_time(lone, 90)
    assert lone.result(commands.Trim(LOG, 9)) == Trimmed(4)


BAD_NAMES = ("", ".", "..", "a/b", "-a", "x\ny", "a\u202eb", "\u2028", "é" * 128)


def test_new_names_that_mean_something_else_are_refused() -> None:
    lone = written(9)
    for name in BAD_NAMES:
        made: list[Command] = [
            commands.CreateLog(b"m" * 16, name, 1, 1, 1),
            commands.AlterLog(LOG, name=name),
            commands.SetCursor(LOG, name, 1),
            commands.SetCursor(LOG, name, 1, change=commands.CursorChange.CREATE),
        ]
        for command in made:
            before = encode_state(lone.group.repository.state)
            error = error_of(lone, command)
            assert isinstance(error, InvalidArgumentError), command
            assert encode_state(lone.group.repository.state) == before
            assert "name" in error.hint


def test_names_that_an_earlier_version_let_in_are_used_as_ever() -> None:
    lone = written(9)
    log = lone.group.repository.state.logs[LOG]
    log.name, log.cursors[".."] = "x\ny", CursorState(1, False, 0, 0)
    lone.result(commands.AlterLog(LOG, name="x\ny", replication=1))
    lone.result(commands.SetCursor(LOG, "..", 2))
    assert log.cursors[".."].position == 2


def test_what_retention_says_goes_by_the_clock_of_the_leader() -> None:
    """It comes from the primary of a stream, whose clock is another one too."""
    lone = written(9)
    lone.result(commands.SetCursor(LOG, "reader", 4, True, 60 * SECOND))
    said = commands.Retain(1, b"", 8, now=HOUR + 61 * SECOND)
    assert lone.result(said) == Trimmed(4)


def test_a_log_is_as_old_as_the_leader_says() -> None:
    lone = written(1)
    made = commands.CreateLog(b"m" * 16, "more", 1, 1, 1, created=1)
    assert isinstance(lone.result(made), Created)
    assert lone.group.repository.state.logs[b"m" * 16].created == HOUR


def test_a_cursor_is_created_once_and_moved_only_if_it_is_there() -> None:
    lone = written(9)
    create, move = commands.CursorChange.CREATE, commands.CursorChange.MOVE
    gone = commands.SetCursor(LOG, "reader", 2, change=move)
    assert isinstance(error_of(lone, gone), NotFoundError)
    made = commands.SetCursor(LOG, "reader", 3, True, SECOND, change=create)
    assert lone.result(made) == Done(HOUR)
    lone.result(commands.Trim(LOG, 6, ignore_pins=True))
    late = commands.SetCursor(LOG, "late", 2, change=create)
    assert lone.result(late) == Done(HOUR)
    assert lone.group.repository.state.logs[LOG].cursors["late"].position == 6
    lone.result(commands.DeleteCursor(LOG, "late"))
    lone.wall += 1
    again = commands.SetCursor(LOG, "reader", 5, False, 0, change=create)
    assert lone.result(again) == Done(HOUR)
    moved = commands.SetCursor(LOG, "reader", 4, False, 0, change=move)
    assert lone.result(moved) == Done(HOUR + 1)
    (row,) = lone.result(commands.GetCursors(LOG)).rows  # type: ignore[attr-defined]
    assert row == CursorRow("reader", 4, True, HOUR + 1, SECOND)


# -- room ------------------------------------------------------------------------

LIMIT = 12 << 10


def full() -> Lone:
    """Return a group whose metadata has no room for one more cursor."""
    lone = Lone(state_bytes_max=LIMIT * 4 // 3).prepared()
    lone.tell(told(10))
    for number in range(1000):
        cursor = commands.SetCursor(LOG, f"reader-{number:030}", 1)
        if error_of(lone, cursor) is not None:
            # It was refused by an upper bound, if not by the size.
            lone.wait(2.0)
            lone.tell(told(11))
            if (error := error_of(lone, cursor)) is not None:
                assert isinstance(error, MetadataFullError)
                assert "Delete unused logs or cursors" in str(error)
                return lone
    raise AssertionError("nothing was refused")


GROWING: dict[str, Command] = {
    "log": commands.CreateLog(b"m" * 16, "more", 1, 1, 1),
    "name": commands.AlterLog(LOG, name="n" * 200),
    "options": commands.AlterLog(LOG, options=b"o" * 200),
    "cursor": commands.SetCursor(LOG, "reader-" + "n" * 100, 1),
}
OTHERS: dict[str, Command] = {
    "moved cursor": commands.SetCursor(LOG, f"reader-{0:030}", 2, True),
    "trim": commands.Trim(LOG, 5),
    "rename": commands.AlterLog(LOG, name="s"),
    "drain": commands.DrainNode(1),
    "seal": commands.Unseal(1),
    "node": commands.RegisterNode(2, "host:2", 1),
    "delete cursor": commands.DeleteCursor(LOG, f"reader-{0:030}"),
    "delete": commands.DeleteLog(LOG),
}


def test_what_would_not_fit_is_refused_and_what_makes_room_passes() -> None:
    lone = full()
    # The cuts that its log may need one day are not there yet.
    size = len(encode_state(lone.group.repository.state)) + 32 * 64
    assert LIMIT * 7 // 8 < size <= LIMIT
    for name, command in GROWING.items():
        before = lone.group.repository.index
        assert isinstance(error_of(lone, command), MetadataFullError), name
        assert lone.group.repository.index == before, "it is in the log"
    for name, command in OTHERS.items():
        assert error_of(lone, command) is None, name


def test_room_that_was_made_can_be_used_at_once() -> None:
    lone = full()
    for number in range(9):
        lone.result(commands.DeleteCursor(LOG, f"reader-{number:030}"))
    assert lone.result(commands.SetCursor(LOG, "reader-new", 1)) == Done()


def test_the_metadata_can_always_be_folded() -> None:
    lone = full()
    for position in range(1, 200):
        cursor = commands.SetCursor(LOG, f"reader-{0:030}", position % 10 + 1)
        lone.do(cursor, b"%d" % position)
        error_of(lone, commands.SetCursor(LOG, f"more-{position}", 1))
    assert lone.group.unfolded_bytes == 0


def test_a_log_counts_with_all_its_streams() -> None:
    """Before it is created: what a command takes is not what it leaves."""
    lone = Lone(state_bytes_max=LIMIT * 4 // 3).prepared()
    large = commands.CreateLog(b"m" * 16, "large", 500, 1, 1)
    assert isinstance(error_of(lone, large), MetadataFullError)
    small = commands.CreateLog(b"m" * 16, "small", 5, 1, 1)
    assert isinstance(lone.result(small), Created)


def test_results_that_are_remembered_are_bounded_in_bytes() -> None:
    """Else logs with many streams, made and deleted, would fill the metadata."""
    repository = Repository()
    index = 0

    def do(command: Command) -> None:
        nonlocal index
        index += 1
        repository.apply(index, commands.encode_call(command, b"%016d" % index))

    do(commands.RegisterNode(1, "host:1", 1))
    for number in range(300):
        log = number.to_bytes(16, "big")
        do(commands.CreateLog(log, f"log-{number}", 1024, 1, 1))
        do(commands.DeleteLog(log))
        if number == 150:
            repository.restore(repository.snapshot())
    calls = repository.state.calls
    size = sum(map(len, calls.values()))
    assert CALL_BYTES_MAX // 2 < size <= CALL_BYTES_MAX
    assert len(calls) < CALLS_MAX
    assert repository.result_of(b"%016d" % index) == Done()
