"""When a standby takes over: the rule by itself, and many standbys with it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.app.execution.succession import BEAT_S, Sign, Succession, View
from braidlog.errors import InvalidArgumentError

A, B, C = (name * 16 for name in (b"a", b"b", b"c"))
AFTER = 10.0


def view(touched: int, *, mine: int = 50, other: int = 0, active: bytes = A) -> View:
    signs = {A: Sign(90, touched), B: Sign(mine, 7)}
    if other:
        signs[C] = Sign(other, 7)
    return View(active, 1, signs)


def due(rule: Succession, looks: Mapping[int, View | None]) -> list[int]:
    return [at for at, seen in looks.items() if rule.look(float(at), seen)]


def test_a_host_that_shows_itself_stays() -> None:
    rule = Succession(B, AFTER)
    assert due(rule, {at: view(at // 8) for at in range(100)}) == []


def test_silence_is_counted_from_the_last_sign() -> None:
    rule = Succession(B, AFTER)
    assert due(rule, {at: view(min(at, 20)) for at in range(32)}) == [30, 31]


def test_who_could_not_look_begins_again() -> None:
    rule = Succession(B, AFTER)
    looks = {at: None if at == 8 else view(1) for at in range(20)}
    assert due(rule, looks) == [19]
    # Nor does it know what was shown while it did not run at all.
    rule = Succession(B, AFTER)
    assert due(rule, {0: view(1), 5: view(1), 30: view(1), 35: view(1)}) == []


def test_a_new_active_host_has_as_long_as_any_other() -> None:
    rule = Succession(B, AFTER)
    looks = {at: view(1) if at < 9 else view(1, active=C) for at in range(19)}
    assert due(rule, looks) == []
    assert due(Succession(B, AFTER), dict.fromkeys(range(40), view(1, active=B))) == []
    nobody = View(b"", 0, {})
    assert due(Succession(B, AFTER), dict.fromkeys(range(11), nobody)) == [10]


def test_who_is_furthest_comes_first() -> None:
    assert due(Succession(B, AFTER), {at: view(1, other=60) for at in range(13)}) == [
        12
    ]
    assert due(Succession(B, AFTER), {at: view(1, other=40) for at in range(11)}) == [
        10
    ]
    # One whose lease has ended is gone.
    gone = View(A, 1, {A: Sign(9, 1), B: Sign(5, 1), C: Sign(8, 1, live=False)})
    assert due(Succession(B, AFTER), dict.fromkeys(range(11), gone)) == [10]


def test_a_time_that_one_late_sign_would_pass_is_refused() -> None:
    for wrong in (0, -1, 2 * BEAT_S, float("nan")):
        with pytest.raises(InvalidArgumentError, match="promote_after"):
            Succession(B, wrong)


@settings(deadline=None)
@given(
    standbys=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    dies=st.floats(5, 60),
    phases=st.lists(st.floats(0, 2), min_size=5, max_size=5),
    blind=st.tuples(st.floats(0, 90), st.floats(0, 20)),
)
def test_exactly_one_takes_over_in_time(
    standbys: list[int],
    dies: float,
    phases: list[float],
    blind: tuple[float, float],
) -> None:
    """An active host that dies; standbys that look each at times of their own.

    For a while nobody can look, nor can the active host show itself.
    """
    hosts = {bytes([n]) * 16: position for n, position in enumerate(standbys, 1)}
    rules = {host: Succession(host, AFTER) for host in hosts}
    signs = {A: Sign(0, 0)} | {host: Sign(at, 0) for host, at in hosts.items()}
    active, taken = A, list[float]()
    events = sorted(
        (phase + BEAT_S * beat, host)
        for phase, host in zip(phases, [A, *hosts], strict=False)
        for beat in range(80)
    )
    for at, host in events:
        dark = blind[0] <= at < sum(blind)
        if host == active:
            if not dark and (host != A or at < dies):
                signs[host] = Sign(signs[host].position, int(at * 1000))
            continue
        if host == A:
            continue
        seen = None if dark else View(active, 1 + len(taken), dict(signs))
        if rules[host].look(at, seen):
            taken.append(at)
            active = host
    assert len(taken) == 1
    assert taken[0] > dies, "it could be seen"
    assert taken[0] - signs[A].touched / 1000 >= AFTER
    visible = max(dies, sum(blind) if blind[0] < dies + AFTER + 9 else 0)
    assert taken[0] <= visible + AFTER + 2 * len(hosts) + 2 * BEAT_S
