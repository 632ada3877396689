"""What a rescue takes of copies of the metadata repository, and what comes of it."""

from __future__ import annotations

from dataclasses import replace

from braidlog.faultlog.configuration import Configuration
from braidlog.metarepo.machine.adoption import about
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import State, decode_state
from braidlog.metarepo.succession import (
    Copy,
    Recovered,
    base_of,
    recover,
    seed_of,
)
from braidlog.raft import Base, Entry, EntryKind, HardState, Membership, Stored, codec
from braidlog.wire import commands
from braidlog.wire.commands import Command, OfferReplicas, StoredReplica
from braidlog.wire.messages import LogCut, StreamConfig, StreamRun
from braidlog.wire.results import Refused
from unit.metarepo.bench import LOG

VOTERS = Membership(voters=(1, 2, 3))
CONFIGURATION = Configuration(2, 0, (1, 2, 3), (1,))


def entry(index: int, term: int, command: Command | None = None) -> Entry:
    if command is None:
        return Entry(index, term, EntryKind.EMPTY)
    return Entry(index, term, EntryKind.DATA, commands.encode_call(command))


def copy(
    node: int,
    *entries: Entry,
    group: int = 1,
    term: int = 0,
    commit: int = 0,
    base: Base | None = None,
) -> Copy:
    base = base or Base(membership=VOTERS)
    last = entries[-1].term if entries else base.term
    hard = HardState(max(term, last), 0, commit)
    return Copy(node, group, Stored(base, entries, hard))


def recovered(*copies: Copy) -> Recovered:
    found = recover(copies)
    assert found is not None
    return found


def node(index: int, term: int) -> Entry:
    return entry(index, term, commands.RegisterNode(index, f"host:{index}", 1))


def test_without_a_copy_there_is_nothing() -> None:
    assert recover([]) is None


def test_the_copy_that_would_win_an_election_counts() -> None:
    first = entry(1, 1)
    long = copy(1, first, node(2, 1), node(3, 1), node(4, 1), term=4)
    short = copy(2, first, node(2, 1), entry(3, 3))
    found = recovered(long, short)
    assert (found.node, found.index) == (2, 3)
    assert len(found.state.nodes) == 1
    assert found.complete


def test_the_longer_of_two_with_one_term_counts_and_the_first_of_equals() -> None:
    first, second = entry(1, 1), node(2, 1)
    assert recovered(copy(2, first), copy(3, first, second)).node == 3
    assert recovered(copy(3, first, second), copy(2, first, second)).node == 2


def test_what_a_majority_has_of_the_last_term_is_proven() -> None:
    entries = (entry(1, 1), node(2, 1), node(3, 1))
    found = recovered(copy(1, *entries), copy(2, *entries[:2]))
    assert (found.proven, found.unproven) == (2, {"RegisterNode": 1})
    # Kept all the same, as a leader would.
    assert len(found.state.nodes) == 2
    # Who has voted in a later term may have seen something else in its place.
    later = recovered(copy(1, *entries), copy(2, *entries[:2], term=2))
    assert later.proven == 0
    # Of an earlier term a majority proves nothing, until one of the last is on it.
    mixed = (*entries[:2], entry(3, 2))
    assert recovered(copy(1, *mixed), copy(2, *entries[:2], term=2)).proven == 0
    assert recovered(copy(1, *mixed), copy(2, *mixed)).proven == 3


def test_what_one_copy_says_is_committed_is_proven() -> None:
    entries = (entry(1, 1), node(2, 1), node(3, 1))
    found = recovered(copy(3, *entries, commit=2))
    assert (found.proven, found.complete) == (2, False)
    assert (found.voters, found.heard) == ((1, 2, 3), (3,))


def test_the_membership_in_the_log_says_who_is_a_majority() -> None:
    joined = Membership(voters=(3, 4, 5), epoch=2)
    change = Entry(2, 1, EntryKind.MEMBERSHIP, codec.encode(joined))
    found = recovered(copy(4, entry(1, 1), change), copy(5, entry(1, 1), change))
    assert (found.voters, found.complete) == ((3, 4, 5), True)


def test_a_later_group_comes_before_a_longer_one() -> None:
    old = copy(1, entry(1, 9), node(2, 9), node(3, 9))
    seed = seed_of(recovered(old), CONFIGURATION)
    begun = copy(2, group=2, base=base_of(CONFIGURATION, (2, 3), seed))
    found = recovered(old, begun, copy(3, entry(1, 1)))
    # Who has not heard of the later group has nothing of it either.
    assert (found.node, found.complete) == (2, True)
    # It was not settled: what it was given is what there is.
    assert len(found.state.nodes) == 2
    assert decode_state(seed_of(found, CONFIGURATION).state).nodes.keys() == {2, 3}


# --- what the next repository makes of it


def config(stream: int, epoch: int, *replicas: int, start: int = 1) -> StreamConfig:
    made = before().state.streams[stream]
    return StreamConfig(
        stream, LOG, "log", epoch, made.status, replicas, (), start, (), 0, 0, 1, b""
    )


def stored(
    made: StreamConfig, *, end: int, committed: int, version: int = 0, last: int = 0
) -> StoredReplica:
    text = about(made)
    return StoredReplica(made.stream, made.epoch, text, committed, end, version, last)


def before() -> Repository:
    """Return a repository with two streams, of which one has 4 records, in two cuts."""
    repository = Repository()
    run = StreamRun(1, 1, 1, 2, 1)
    cuts = [
        LogCut(LOG, 1, 2, (run,)),
        LogCut(LOG, 2, 4, (replace_run(run, 3, 3),)),
    ]
    done: list[Command] = [
        *(commands.RegisterNode(node, f"host:{node}", 1) for node in (1, 2, 3)),
        commands.CreateLog(LOG, "log", 2, 3, 1, placement=((1, 2, 3), (1,))),
        *(commands.Cut((cut,)) for cut in cuts),
        commands.SetCursor(LOG, "reader", 3, pin=True),
        commands.DrainNode(3),
    ]
    for index, command in enumerate(done, start=1):
        result = repository.apply(index, commands.encode_call(command, b"c%d" % index))
        assert not isinstance(result, Refused), result
    return repository


def replace_run(run: StreamRun, llsn: int, glsn: int) -> StreamRun:
    return StreamRun(run.stream, llsn, glsn, run.length, run.epoch)


def begun(state: State, *, complete: bool = True) -> Repository:
    found = Recovered(
        2, 1, state.index, state.index, {}, (1, 2, 3), (2, 3), complete, state
    )
    base = base_of(CONFIGURATION, (2, 3), seed_of(found, CONFIGURATION))
    return Repository(base.state)


def adopted(repository: Repository, **offers: tuple[StoredReplica, ...]) -> State:
    for name, replicas in offers.items():
        command = OfferReplicas(int(name[1:]), 2, 0, 1, replicas)
        index = repository.index + 1
        result = repository.apply(index, commands.encode_call(command))
        assert not isinstance(result, Refused), result
    return repository.state


def test_nothing_is_shown_before_all_have_said_what_they_hold() -> None:
    repository = begun(before().state)
    assert repository.index == before().index + 1
    mine = stored(config(1, 1, 1, 2, 3), end=5, committed=3, version=1, last=2)
    state = adopted(repository, n2=(mine,))
    assert (state.logs, state.streams) == ({}, {})
    assert sorted(state.nodes) == [2, 3]
    assert state.nodes[3].draining
    again = recover([copy(2, group=2, base=Base(9, 1, VOTERS, repository.snapshot()))])
    assert again is not None
    assert sorted(again.state.streams) == [1, 2]


def test_positions_that_were_given_out_stay() -> None:
    made = config(1, 1, 1, 2, 3)
    state = adopted(
        begun(before().state),
        n2=(stored(made, end=6, committed=3, version=1, last=2),),
        n3=(stored(made, end=6, committed=1),),
    )
    log, stream = state.logs[LOG], state.streams[1]
    assert (stream.epoch, stream.start, stream.committed) == (2, 6, 6)
    assert stream.replicas == (2, 3)
    # The cuts go on: what they gave stays, what all hold besides comes behind.
    assert [cut.version for cut in log.history] == [1, 2, 3]
    assert log.history[-1].runs == (StreamRun(1, 5, 5, 1, 1),)
    assert (log.version, log.high_watermark) == (3, 5)
    assert log.cursors["reader"].position == 3
    assert state.stream_next == 3
    assert b"c4" in state.calls


def test_a_stream_without_records_begins_again_where_there_are_nodes() -> None:
    made = config(1, 1, 1, 2, 3)
    both = (stored(made, end=5, committed=5, version=2, last=4),)
    state = adopted(begun(before().state), n2=both, n3=both)
    assert state.logs[LOG].streams == (1, 2)
    assert (state.streams[2].replicas, state.streams[2].epoch) == ((2, 3), 2)


def test_a_stream_that_was_given_up_is_left_out() -> None:
    state = before().state
    state.streams[2].committed = 9
    made = config(1, 1, 1, 2, 3)
    both = (stored(made, end=5, committed=5, version=2, last=4),)
    after = adopted(begun(state), n2=both, n3=both)
    assert (after.logs[LOG].streams, sorted(after.streams)) == ((1,), [1])


def test_what_an_epoch_that_nobody_entered_refused_stays_refused() -> None:
    repository = before()
    command = commands.Reconfigure(1, 1, (2, 3), (), repository.state.streams[1].status)
    repository.apply(99, commands.encode_call(command))
    made = config(1, 1, 1, 2, 3)
    both = (stored(made, end=9, committed=5, version=2, last=4),)
    state = adopted(begun(repository.state), n2=both, n3=both)
    stream = state.streams[1]
    assert (stream.epoch, stream.start, stream.committed) == (3, 5, 5)
    assert stream.epochs == ((1, 1), (2, 5))
    assert state.logs[LOG].high_watermark == 4


def test_a_copy_that_is_behind_the_disks_gives_way_to_them() -> None:
    made = config(1, 7, 2, 3, start=9)
    both = (stored(made, end=12, committed=11, version=6, last=30),)
    state = adopted(begun(before().state, complete=False), n2=both, n3=both)
    log, stream = state.logs[LOG], state.streams[1]
    assert (stream.epoch, stream.start) == (8, 12)
    assert log.history == [LogCut(LOG, 7, 31, (StreamRun(1, 11, 31, 1, 7),))]
    # What was given out behind the copy is not known.
    assert state.stream_next > 1000
    assert log.cursors["reader"].position == 3


def test_what_was_deleted_does_not_come_back() -> None:
    repository = before()
    repository.apply(99, commands.encode_call(commands.DeleteLog(LOG)))
    made = config(1, 1, 1, 2, 3)
    both = (stored(made, end=5, committed=5, version=2, last=4),)
    state = adopted(begun(repository.state), n2=both, n3=both)
    assert (state.logs, state.streams, state.orphans) == ({}, {}, ())


def test_a_move_goes_on_if_both_nodes_are_left() -> None:
    for target, expected in ((3, (2, 3)), (1, None)):
        repository = before()
        made = repository.state.streams[1]
        made.replicas, made.holders = (2,), (2,)
        made.learners, made.move = (target,), (2, target)
        mine = stored(config(1, 1, 2), end=5, committed=5, version=2, last=4)
        state = adopted(begun(repository.state), n2=(mine,), n3=())
        assert state.streams[1].move == expected
        assert state.streams[1].learners == ((3,) if expected else ())


def test_the_same_copies_give_the_same_seed() -> None:
    entries = (entry(1, 1), node(2, 1))
    one = seed_of(recovered(copy(2, *entries), copy(3, *entries)), CONFIGURATION)
    assert one == seed_of(
        recovered(copy(3, *entries), copy(2, *entries)), CONFIGURATION
    )
    later = replace(CONFIGURATION, epoch=3)
    again = seed_of(recovered(copy(2, *entries), copy(3, *entries)), later)
    assert (again.state, again.epoch) == (one.state, 3)
