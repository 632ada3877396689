"""Places are shared fairly: between machines, and between strangers, clients, nodes."""

from __future__ import annotations

import pytest

from braidlog.errors import InvalidArgumentError, NotReadyError
from braidlog.serving.admission import (
    RESERVED_FILES,
    Capacity,
    ConnectionAdmission,
    capacity,
)
from braidlog.serving.places import Places, origin_of


def idle(_: int) -> bool:
    return False


def test_there_are_never_more_holders_than_places() -> None:
    for oldest_goes in (True, False):
        places = Places[int](10, oldest_goes=oldest_goes)
        for holder in range(100):
            places.enter(holder, str(holder % 7))
            assert len(places) == min(holder + 1, 10)


def test_one_origin_may_have_all_places_and_then_the_oldest_or_the_newcomer_goes() -> (
    None
):
    strangers = Places[int](3, oldest_goes=True)
    clients = Places[int](3, oldest_goes=False)
    gone = [(strangers.enter(n, "a"), clients.enter(n, "a")) for n in range(5)]
    assert gone == [(None, None)] * 3 + [(0, 3), (1, 4)]


def test_an_origin_that_has_less_takes_a_place_of_the_one_that_has_most() -> None:
    places = Places[int](4, oldest_goes=False)
    for holder in range(4):
        places.enter(holder, "a")
    # Not one that is busy, as long as there is another.
    assert places.enter(10, "b", lambda holder: holder in {0, 1}) == 2
    assert places.enter(11, "b", lambda _: True) == 0
    # Both have two.
    assert places.enter(12, "b") == 12
    assert places.enter(4, "a") == 4
    assert places.enter(20, "c") == 1
    # Nobody would have less than before, so nobody displaces anybody for ever.
    assert places.enter(21, "c") == 21
    assert places.enter(5, "a") == 5


def test_who_left_has_no_place() -> None:
    places = Places[int](1, oldest_goes=True)
    places.enter(1, "a")
    places.leave(1)
    places.leave(1)
    assert len(places) == 0
    assert places.enter(2, "b") is None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("nowhere", "nowhere"),
    ],
)
def test_an_origin_is_an_address_or_a_network(host: str, origin: str) -> None:
    assert origin_of(host) == origin


def test_silent_strangers_keep_neither_clients_nor_nodes_out() -> None:
    admission = ConnectionAdmission[int](Capacity(strangers=2, clients=2, peers=2))
    # Two places of their own, and two that no client has taken yet.
    assert [admission.arrive(n, "a") for n in range(6)] == [None] * 4 + [0, 1]
    assert admission.greet(5, "a", 0, idle) is None
    assert (admission.strangers, admission.clients) == (3, 1)
    assert admission.arrive(6, "a") == 2
    assert admission.greet(6, "a", 0, idle) is None
    assert (admission.strangers, admission.clients) == (2, 2)
    assert admission.counters.strangers_dropped == 3
    admission.leave(5)
    assert admission.arrive(7, "a") is None


def test_a_client_that_goes_for_another_has_a_place_until_it_is_closed() -> None:
    admission = ConnectionAdmission[int](Capacity(strangers=2, clients=4, peers=2))
    for holder in range(4):
        admission.arrive(holder, "a")
        admission.greet(holder, "a", 0, idle)
    for holder in (4, 5):
        admission.arrive(holder, "b")
        assert admission.greet(holder, "b", 0, idle) == holder - 4
    # Of both that go, none is closed yet.
    assert (admission.strangers, admission.clients) == (2, 4)
    assert admission.arrive(6, "b") == 0
    assert admission.strangers == 2
    admission.leave(1)
    assert admission.strangers == 1


def test_clients_keep_no_node_out_and_the_refused_is_told_why() -> None:
    admission = ConnectionAdmission[int](Capacity(strangers=9, clients=2, peers=2))
    for holder in range(5):
        admission.arrive(holder, "a")
    for holder in range(2):
        assert admission.greet(holder, "a", 0, idle) is None
    with pytest.raises(
        NotReadyError, match="all 2 client connections of this node are in use"
    ):
        admission.greet(2, "a", 0, idle)
    assert admission.counters.connections_refused == 1
    # Of the peers' places the second connection of a node takes that of its first.
    assert [admission.greet(n, "a", 7, idle) for n in (3, 4)] == [None, None]
    admission.arrive(5, "a")
    assert admission.greet(5, "a", 7, idle) == 3
    admission.leave(0)
    assert admission.has_room
    assert admission.greet(2, "a", 0, idle) is None


def test_places_fit_the_limit_of_open_files() -> None:
    for files in (160, 200, 1024, 1200, 20_000, 1 << 20):
        found = capacity(10_000, files)
        taken = found.strangers + found.clients + found.peers
        assert taken + RESERVED_FILES <= files
        assert min(found.strangers, found.clients, found.peers) >= 4
    assert capacity(10_000, 20_000).clients == 10_000
    with pytest.raises(InvalidArgumentError, match=r"may open 159 files.*160.*ulimit"):
        capacity(10_000, 159)
