"""Every reader of a ledger comes to what all of its entries together say.

Several readers append, read and tidy up at the same log, some made anew in between; the
model folds every entry that was ever appended.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.errors import CorruptionError, NewerFormatError
from braidlog.spark.sink.ledger.entries import (
    Batch,
    Done,
    Entry,
    FileList,
    Resume,
    StagedFile,
    Summary,
    Void,
    decode,
    encode,
)
from braidlog.spark.sink.ledger.ledger import Ledger
from braidlog.spark.sink.ledger.state import LedgerState
from braidlog.testing import MemoryStore

numbers = st.integers(0, 3)
names = st.sampled_from(["p", "q", "r"])
attempts = st.sampled_from(["a", "b", "c"])
files = st.builds(StagedFile, attempts, st.integers(1, 2), numbers, numbers, numbers)
entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(
        Batch,
        names,
        numbers,
        attempts,
        st.integers(1, 9),
        numbers,
        st.just("staging"),
        st.lists(files, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(
        Batch,
        names,
        numbers,
        attempts,
        st.integers(1, 9),
        numbers,
        st.just("staging"),
        st.just(()),
        st.booleans(),
        st.builds(FileList, attempts, numbers, numbers, numbers, attempts),
        st.dictionaries(st.integers(1, 2), numbers).map(
            lambda found: tuple(sorted(found.items()))
        ),
    ),
    st.builds(Done, names, numbers, numbers),
    st.builds(Void, names, numbers, attempts),
    st.builds(Resume, names, numbers, st.integers(1, 2), st.integers(2, 3), numbers),
)
steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(entries, st.sampled_from(["read", "tidy", "anew"])),
    ),
    max_size=60,
)


def text(state: LedgerState) -> Any:
    return encode(state.summary())


class Appended(Ledger):
    """A ledger whose entries the model sees as well, in the order of the log."""

    def __init__(self, log: Any, seen: dict[int, Entry]) -> None:
        super().__init__(log, summary_every=6)
        self._seen = seen

    def append(self, entry: Entry) -> int:
        position = super().append(entry)
        self._seen[position] = entry
        return position


@settings(max_examples=150, deadline=None)
@given(steps)
def test_every_reader_sees_what_all_entries_come_to(
    history: list[tuple[int, Any]],
) -> None:
    seen: dict[int, Entry] = {}
    with MemoryStore() as node:
        log = node.create_log("orders.ledger")
        readers = [Appended(log, seen) for _ in range(3)]
        for reader, step in history:
            if step == "anew":
                readers[reader] = Appended(log, seen)
            elif step == "tidy":
                readers[reader].tidy()
            elif step == "read":
                readers[reader].read()
            else:
                readers[reader].append(step)
        model = LedgerState()
        for position, entry in sorted(seen.items()):
            model.apply(position, entry)
        for each in [*readers, Appended(log, seen)]:
            assert text(each.read()) == text(model)
        assert log.end - log.first <= max(len(seen), 1)


@given(entries)
def test_an_entry_is_decoded_as_it_was(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


@given(st.lists(entries, max_size=12))
def test_a_summary_is_the_state(several: list[Entry]) -> None:
    state = LedgerState()
    for position, entry in enumerate(several, 1):
        state.apply(position, entry)
    summary = decode(encode(state.summary()))
    assert isinstance(summary, Summary)
    assert text(LedgerState.of(summary)) == text(state)


def test_a_ledger_stays_small() -> None:
    with MemoryStore() as node:
        log = node.create_log("orders.ledger")
        ledger = Ledger(log, summary_every=10)
        for batch in range(200):
            ledger.append(Batch("q", batch, "a", 7, 1, "staging", ()))
            ledger.append(Done("q", batch, 1))
            ledger.tidy()
            assert log.end - log.first <= 12
        query = Ledger(log).read().query("q")
        assert query is not None
        assert (query.batch, query.done) == (199, True)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"", CorruptionError),
        (b"[]", CorruptionError),
        (b'{"v":1,"kind":"done"}', CorruptionError),
        (b'{"v":1,"kind":"done","query":"q","batch":"7","end":1}', CorruptionError),
        (b'{"v":1,"kind":"later"}', NewerFormatError),
        (b'{"v":2,"kind":"done"}', NewerFormatError),
    ],
)
def test_what_is_no_entry_is_refused(value: bytes, error: type[Exception]) -> None:
    with MemoryStore() as node:
        log = node.create_log("orders.ledger")
        log.append(value)
        with pytest.raises(error):
            Ledger(log).read()


def test_entries_of_earlier_versions_are_read_and_written() -> None:
    """Those that name no list are what they were, to the byte, also in a summary."""
    file = StagedFile("q/1/a/0.arrow", 2, 30, 400, 5)
    batch = Batch("q", 1, "a", 7, 9, "staging", (file,))
    named = (
        '"files":[{"path":"q/1/a/0.arrow","stream":2,"records":30,"bytes":400,'
        '"checksum":5}]'
    )
    assert encode(batch).decode() == (
        '{"v":1,"kind":"batch","query":"q","batch":1,"attempt":"a","producer":7,'
        f'"since":9,"staging":"staging",{named},"once":false}}'
    )
    state = LedgerState()
    state.apply(1, batch)
    assert encode(state.summary()).decode() == (
        '{"v":1,"kind":"summary","as_of":2,"state":{"queries":{"q":{"producer":7,'
        '"batch":1,"done":false,"attempt":"a","since":9,"end":0,"staging":"staging",'
        f'{named},"lanes":{{"2":{{"epoch":1,"first":1,"next":31}}}},"void":{{}},'
        '"once":false,"touched":1}}}}'
    )
    assert decode(encode(batch)) == batch


def test_a_trim_without_a_summary_is_refused() -> None:
    with MemoryStore() as node:
        log = node.create_log("orders.ledger")
        for batch in range(3):
            log.append(encode(Done("q", batch, 1)))
        log.trim(2)
        with pytest.raises(CorruptionError, match="trimmed to 2, and no summary"):
            Ledger(log).read()
