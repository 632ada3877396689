"""The replay finds what is lost, doubled, out of place or different."""

from __future__ import annotations

from examples.demo.events import Entry, Event, encode, key_of
from examples.demo.files import digest_of
from examples.demo.replay import Difference, Replay, Row, compare

BLOB: Entry = ("b1", "100644")


def event(seq: int, path: str = "p", *, source: str = "s", put: bool = True) -> Event:
    return Event(86_400 * seq, source, seq, "c", "a", path, BLOB if put else None)


def rows(*events: Event) -> list[Row]:
    return [
        (position, e.ts * 1_000_000, key_of(e), encode(e))
        for position, e in enumerate(events, 1)
    ]


def replayed(*events: Event) -> Replay:
    replay = Replay()
    replay.feed(rows(*events))
    return replay


def test_folds_events_into_trees() -> None:
    replay = replayed(
        event(0, "kept"),
        event(1, "gone"),
        event(0, "kept", source="t"),
        event(2, "gone", put=False),
    )
    assert replay.trees == {"s": {"kept": BLOB}, "t": {"kept": BLOB}}
    assert (replay.lost, replay.doubled, replay.mismatched) == (0, 0, 0)
    assert replay.counts.months == {("s", "1970-01"): 3, ("t", "1970-01"): 1}
    assert replay.counts.top(2) == [(b"s/gone", 2), (b"s/kept", 1)]


def test_counts_what_is_lost() -> None:
    assert replayed(event(1), event(2), event(5)).lost == 3


def test_counts_what_is_doubled_and_applies_it_once() -> None:
    replay = replayed(event(0), event(1, put=False), event(0))
    assert replay.doubled == 1
    assert replay.trees == {"s": {}}
    assert replay.counts.paths.total() == 2


def test_notices_gaps_in_positions_and_foreign_keys_or_times() -> None:
    first, second, third = rows(event(0), event(1), event(2))
    for wrong in [
        (second[0] + 1, *second[1:]),
        (second[0], second[1] + 1, *second[2:]),
        (*second[:2], b"s/other", second[3]),
    ]:
        replay = Replay()
        replay.feed([first, wrong])
        assert replay.mismatched == 1
    replay = Replay()
    replay.feed([first, third])
    assert (replay.mismatched, replay.lost) == (1, 1)


def test_digest_depends_on_order_and_content() -> None:
    given = [event(0), event(1)]
    assert replayed(*given).digest == digest_of(map(encode, given))
    assert replayed(*given).digest != digest_of(map(encode, reversed(given)))


def test_names_every_difference() -> None:
    expected = {"s": {"same": BLOB, "other": BLOB, "missing": BLOB}, "t": {"x": BLOB}}
    found = {"s": {"same": BLOB, "other": ("b2", "100755"), "extra": BLOB}}
    differences = list(compare(expected, found))
    assert differences == [
        Difference("s", "extra", None, BLOB),
        Difference("s", "missing", BLOB, None),
        Difference("s", "other", BLOB, ("b2", "100755")),
        Difference("t", "x", BLOB, None),
    ]
    assert str(differences[2]) == "s/other: expected 100644 b1, found 100755 b2"
    assert str(differences[0]) == "s/extra: expected nothing, found 100644 b1"
