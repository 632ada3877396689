"""Memory for frames that are not whole is bounded, and nobody keeps it for long."""

from __future__ import annotations

from braidlog.serving.intake import SMALL_BYTES, Intake

MIB = 1 << 20


def begin(intake: Intake[int], holder: int, size: int, now: float = 0.0) -> bool:
    return intake.begin(holder, 0, size, now, origin=str(holder % 2))


def test_a_frame_waits_until_there_is_room_for_all_of_it() -> None:
    intake = Intake[int](10 * MIB)
    assert begin(intake, 1, 6 * MIB)
    assert not begin(intake, 2, 6 * MIB)
    assert intake.waiting
    # Behind it, although there would be room.
    assert not begin(intake, 4, MIB)
    assert intake.ready(1.0) == []
    intake.end(1)
    assert intake.ready(2.0) == [2, 4]
    assert intake.held_bytes == 7 * MIB
    assert not intake.waiting


def test_small_frames_and_those_of_peers_never_wait() -> None:
    intake = Intake[int](MIB)
    assert begin(intake, 1, MIB)
    assert not begin(intake, 2, MIB)
    assert begin(intake, 3, SMALL_BYTES)
    assert not begin(intake, 4, SMALL_BYTES + 1)
    assert intake.begin(5, 0, 8 * MIB, 0.0, exempt=True)


def test_a_frame_larger_than_all_of_it_comes_in_alone() -> None:
    intake = Intake[int](MIB)
    assert begin(intake, 1, 2 * MIB)
    assert not begin(intake, 2, 2 * MIB)
    intake.end(1)
    assert intake.ready(0.0) == [2]


def test_a_header_that_comes_later_says_how_much_is_wanted() -> None:
    intake = Intake[int](MIB)
    assert begin(intake, 1, MIB)
    assert begin(intake, 2, 20)
    assert not begin(intake, 2, MIB)
    assert intake.held_bytes == MIB
    intake.end(2)
    assert not intake.waiting


def test_room_goes_to_the_origin_that_has_least() -> None:
    intake = Intake[int](4 * MIB)
    for odd in (1, 3, 5, 7):
        assert begin(intake, odd, MIB)
    for holder in (9, 11, 2):
        assert not begin(intake, holder, MIB)
    intake.end(1)
    assert intake.ready(0.0) == [2]
    intake.end(3)
    assert intake.ready(0.0) == [9]


def test_time_runs_for_each_frame_and_is_short_while_others_wait() -> None:
    intake = Intake[int](16 * MIB)
    assert begin(intake, 1, 16 * MIB, 100.0)
    assert begin(intake, 2, 10, 100.0)
    assert intake.overdue(105.0) == []
    assert intake.overdue(111.0) == [2]
    assert intake.overdue(175.0) == [1, 2]
    # The next frame of the same connection, and one that was not read meanwhile.
    intake.begin(2, 1, 10, 174.0, origin="0")
    intake.restart(1, 174.0)
    assert intake.overdue(175.0) == []
    assert not begin(intake, 3, MIB, 175.0)
    assert intake.overdue(181.0) == [1, 2]
    # Who waits has all the time.
    intake.end(1)
    assert intake.ready(200.0) == [3]
    assert intake.overdue(201.0) == [2]


def test_a_peer_has_all_the_time_it_wants() -> None:
    intake = Intake[int](MIB)
    intake.begin(1, 0, MIB, 0.0, exempt=True)
    assert intake.overdue(1e9) == []
    assert len(intake) == 1
