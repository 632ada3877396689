"""Which ABORT entries count, by who was active where they lie in the log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.app.determinism.codec import encode
from braidlog.app.execution.entries import AbortEntry, Entry, Host, unpack
from braidlog.app.execution.epochs import Aborts, Terms

ENTRIES = st.lists(
    st.one_of(
        st.builds(Host, st.sampled_from([b"a", b"b"]), st.integers(1, 6)),
        st.builds(AbortEntry, st.integers(1, 3), st.just("slow"), st.integers(0, 6)),
        st.none(),
    ),
    max_size=24,
)


def model(log: list[Entry | None], position: int) -> AbortEntry | None:
    """Go through the log from its start, each time."""
    epoch = 0
    found: list[AbortEntry | None] = []
    for entry in log:
        if isinstance(entry, Host):
            epoch = max(epoch, entry.epoch)
        elif isinstance(entry, AbortEntry) and entry.position == position:
            found.append(entry if entry.epoch in (0, *range(epoch, 9)) else None)
    return next(filter(None, found), None)


@settings(deadline=None)
@given(log=ENTRIES, cut=st.integers(0, 24), beyond=st.integers(0, 24))
def test_the_entry_that_counts_is_that_of_a_model(
    log: list[Entry | None], cut: int, beyond: int
) -> None:
    # A state knows the terms up to some place, which may lie inside the stretch.
    before, aborts = Terms(), Aborts()
    for at, entry in enumerate(log, 1):
        if isinstance(entry, Host) and at <= max(cut, beyond):
            before.add(at, entry)
        if entry is not None and at > cut:
            aborts.add(at, entry)
    again = Terms(before.stored())
    for position in (1, 2, 3):
        hidden = [each if isinstance(each, Host) else None for each in log[:cut]]
        assert aborts.find(position, again) == model([*hidden, *log[cut:]], position)


def test_of_equal_epochs_the_first_counts_and_old_terms_go() -> None:
    terms = Terms()
    assert terms.add(5, Host(b"a", 2))
    assert not terms.add(6, Host(b"b", 2))
    assert not terms.add(5, Host(b"b", 3)), "it was here before"
    assert (terms.last.host, terms.at(5), terms.at(6)) == (b"a", 0, 2)
    for epoch in range(3, 60):
        terms.add(10 * epoch, Host(b"c", epoch))
    assert len(terms.stored()) == 16
    assert (terms.at(6), terms.at(581), terms.at(1_000_000)) == (0, 58, 59)


def test_entries_of_older_versions_have_no_epoch() -> None:
    entry = unpack(bytes.fromhex("8401040564736c6f77"), 9)
    assert entry == AbortEntry(5, "slow", 0)
    assert encode([1, 4, 5, "slow"]).hex() == "8401040564736c6f77"
