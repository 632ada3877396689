"""The log in the core does as its models, and its frames as messages do."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from braidlog.raft import (
    Base,
    Entry,
    EntryKind,
    Frame,
    Membership,
    RaftConfig,
    RaftInvariantError,
    RaftMessageError,
    RaftNode,
    Stored,
)
from braidlog.raft.codec import decode_message, encode
from braidlog.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    PreVoteResponse,
    VoteResponse,
)
from property.raft.books import NODE, Books
from property.raft.simulation import STORMS, run
from unit.raft.nodes import run as settle
from unit.raft.server import said

THREE = Membership(voters=(1, 2, 3))
small = st.integers(0, 4)
kinds = st.sampled_from([EntryKind.DATA] * 4 + list(EntryKind))
datas = st.sampled_from([b"", b"d", bytes(40), bytes(200)])
flags = st.booleans()

Act = tuple[str, tuple[Any, ...]]


def act(name: str, *values: st.SearchStrategy[Any]) -> st.SearchStrategy[Act]:
    return st.tuples(st.just(name), st.tuples(*values))


likely = st.one_of(
    act("append", st.lists(st.sampled_from([0, 0, 0, 1]), max_size=4), kinds, datas),
    act("write", flags),
    act("stored", small),
    act("commit", small),
    act("take", st.sampled_from([1, 100, 1000])),
    act("applied", st.sampled_from([0, 0, 1])),
    act("feed", flags),
    act("peer", st.just("accepted"), st.integers(2, 4), small, small),
    act("track", st.sampled_from([[2, 3], [2, 3], [3, 4], [2]])),
)
seldom = st.one_of(
    act("splice", small, small, st.integers(0, 1)),
    act("misplaced", st.integers(0, 9), st.integers(0, 4)),
    act("fold", small),
    act("install", st.integers(-1, 5)),
    act("promise", st.sampled_from("abc")),
    act("release"),
    act("take_base"),
    act("read", small, small, st.sampled_from([1, 100, 1000])),
    act("ask", st.integers(0, 12), st.integers(0, 6)),
    act(
        "peer",
        st.sampled_from(["accepted", "rejected", "answered", "lost"]),
        st.integers(2, 4),
        small,
        st.integers(0, 9),
    ),
    act("quorum"),
)


def config(**limits: Any) -> RaftConfig:
    return RaftConfig(id=NODE, incarnation=1, jitter=lambda: 0, **limits)


THREE_MORE: Act = ("append", ([1, 0, 0], EntryKind.DATA, b"d"))


@settings(deadline=None, max_examples=400)
@example(
    # What a base replaced is reported as written.
    False,
    False,
    [THREE_MORE, ("write", (False,)), ("install", (1,)), ("stored", (1,))],
)
@example(False, False, [THREE_MORE, ("commit", (2,)), ("splice", (2, 1, 1))])
@given(flags, flags, st.lists(st.one_of(likely, likely, seldom), max_size=40))
def test_the_core_does_as_the_models(
    reader: bool, narrow: bool, script: list[Act]
) -> None:
    limits = {"message_bytes_max": 150, "window_messages": 2, "window_bytes": 300}
    books = Books(
        config(cache_bytes_max=100, **(limits if narrow else {})),
        Base(membership=THREE),
        reader=reader,
    )
    for name, values in script:
        getattr(books, f"do_{name}")(*values)
        if books.failed:
            return
        books.compare()


@pytest.mark.parametrize("storm", STORMS)
def test_frames_do_what_messages_do(storm: str) -> None:
    """What the core takes by itself changes nothing that anybody can see."""
    for seed in range(4):
        taken = run(seed, storm=STORMS[storm])
        stepped = run(seed, storm=STORMS[storm], frames=False)
        assert taken.trace.digest() == stepped.trace.digest()


def followed() -> RaftNode:
    """A follower of node 2 in term 3, with three entries of which one is committed."""
    node = RaftNode(config(), Stored(Base(membership=THREE)))
    entries = (Entry(1, 1), Entry(2, 3), Entry(3, 3, data=b"c"))
    node.step(Append(2, 1, 3, 0, 0, 0, 1, entries))
    settle(node)
    return node


def leading() -> RaftNode:
    """A leader in term 1 with two entries, of which nodes 2 and 3 have one."""
    node = RaftNode(config(), Stored(Base(membership=THREE)))
    node.tick(10)
    settle(node)
    node.step(PreVoteResponse(2, 1, 1, 0, granted=True))
    settle(node)
    node.step(VoteResponse(2, 1, 1, 0, granted=True))
    settle(node)
    for sender in (2, 3):
        node.step(AppendResponse(sender, 1, 1, 0, False, 1, 0, 0))
    node.propose([b"x"])
    settle(node)
    return node


def seen(node: RaftNode) -> list[object]:
    """What follows, with messages as they are meant."""
    return [
        (said(each), each.write, each.committed, each.soft_state, each.reads)
        for each in settle(node)
    ]


numbers = st.sampled_from([0, 1, 2, 3, 4, 5, 6])
terms = st.sampled_from([1, 2, 3, 3, 3, 4])
entries = st.builds(Entry, numbers, terms, kinds, datas)
runs = st.builds(
    lambda begin, term, datas: tuple(
        Entry(index, term, data=data) for index, data in enumerate(datas, begin)
    ),
    st.sampled_from([4, 4, 4, 3, 2]),
    terms,
    st.lists(datas, max_size=3),
)
appends = st.builds(
    Append,
    st.sampled_from([2, 2, 2, 3, 0, 1]),
    st.sampled_from([1, 1, 1, 2]),
    terms,
    numbers,
    st.sampled_from([3, 3, 3, 2, 1, 0, 4]),
    st.sampled_from([3, 3, 3, 1, 0]),
    numbers,
    runs | st.lists(entries, max_size=2).map(tuple),
)
answers = st.builds(
    AppendResponse,
    st.sampled_from([2, 3, 3, 0, 1, 4]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([1, 1, 1, 2]),
    numbers,
    st.sampled_from([False, False, True]),
    st.sampled_from([0, 1, 2, 2, 3]),
    st.sampled_from([0, 0, 1, 3]),
    st.sampled_from([0, 0, 1]),
)
cuts = st.none() | st.tuples(st.integers(0, 120), st.integers(0, 255), flags)


def damaged(data: bytes, cut: tuple[int, int, bool] | None) -> bytes:
    """Change a byte or end there, and make the checksum right again or not."""
    if cut is None:
        return data
    at, value, sealed = cut
    broken = bytearray(data[:at] if value < 40 else data)
    if value >= 40 and at < len(broken):
        broken[at] = value
    if sealed and len(broken) >= 8:
        checksum = zlib.crc32(broken[8:], zlib.crc32(broken[:4]))
        broken[4:8] = checksum.to_bytes(4, "little")
    return bytes(broken)


def stepped(node: RaftNode, data: bytes) -> None:
    node.step(decode_message(data))


def tried(
    node: RaftNode, call: Callable[[RaftNode, bytes], None], data: bytes
) -> tuple[str, str, bool]:
    """Return what was raised, and whether effects may follow."""
    try:
        call(node, data)
    except (RaftInvariantError, RaftMessageError) as error:
        return type(error).__name__, str(error), node.stirred
    return "", "", node.stirred


NEXT = Entry(4, 3, data=b"d")
FOUR = encode(Membership(voters=(1, 2), epoch=4))
WITHOUT = encode(Membership(voters=(2, 3), removed=(1,), epoch=4))


def appended(
    sender: int = 2,
    term: int = 3,
    prev_term: int = 3,
    entry: Entry = NEXT,
) -> Append:
    """Return what continues the log of the follower, or one thing else."""
    commit = 3 if entry.kind is EntryKind.MEMBERSHIP else 4
    return Append(sender, 1, term, 0, 3, prev_term, commit, (entry,))


def answered(
    term: int = 1, index: int = 2, *, rejected: bool = False
) -> AppendResponse:
    """Return what accepts all that the leader has, or one thing else."""
    return AppendResponse(2, 1, term, 0, rejected, index, 0, 0)


@settings(deadline=None, max_examples=400)
@example(False, [(appended(), None)])
@example(True, [(answered(), None)])
@example(
    False,
    [
        (appended(entry=Entry(4, 3, EntryKind.MEMBERSHIP, WITHOUT)), None),
        (Append(2, 1, 3, 0, 4, 3, 4, ()), None),
    ],
)
@example(False, [(appended(sender=3), None)])
@example(False, [(appended(term=2), None)])
@example(False, [(appended(term=4), None)])
@example(False, [(appended(prev_term=2), None)])
@example(False, [(appended(entry=Entry(4, 2, data=b"d")), None)])
@example(False, [(appended(entry=Entry(4, 3, EntryKind.MEMBERSHIP, FOUR)), None)])
@example(False, [(appended(), (89, 65, False))])
@example(True, [(answered(term=2), None)])
@example(True, [(answered(index=3), None)])
@example(True, [(answered(rejected=True), None)])
@example(True, [(answered(), (32, 64, False))])
@given(flags, st.lists(st.tuples(appends | answers, cuts), max_size=4))
def test_any_frame_does_what_its_message_does(
    leads: bool, frames: list[tuple[Append | AppendResponse, Any]]
) -> None:
    make = leading if leads else followed
    taking, stepping = make(), make()
    for message, cut in frames:
        data = damaged(encode(message), cut)
        outcome = tried(taking, RaftNode.take, data)
        assert outcome == tried(stepping, stepped, data)
        if outcome[0] == "RaftInvariantError":
            return
        assert seen(taking) == seen(stepping)


@settings(deadline=None)
@given(st.lists(datas, min_size=1, max_size=5), flags)
def test_frames_are_the_bytes_of_their_messages(
    payloads: list[bytes], more: bool
) -> None:
    leader, follower = leading(), RaftNode(config(), Stored(Base(membership=THREE)))
    leader.propose(payloads)
    frames = [m for m in leader.effects().messages if isinstance(m, Frame)]
    assert frames
    for frame in frames:
        message = decode_message(frame.data)
        assert encode(message) == frame.data
        assert message.receiver == frame.receiver
    follower.step(Heartbeat(2, 1, 3, 0, 0, 1))
    settle(follower)
    follower.take(encode(Append(2, 1, 3, 0, 0, 0, more, (Entry(1, 3, data=b"a"),))))
    sent = [m for effects in settle(follower) for m in effects.messages]
    assert [encode(decode_message(m.data)) for m in sent if isinstance(m, Frame)] == [
        encode(AppendResponse(1, 2, 3, 0, False, 1, 0, 0))
    ]
