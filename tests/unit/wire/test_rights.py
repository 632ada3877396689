"""Grants on logs: which names they fit, what covers what, and how files say them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import InvalidArgumentError, UnauthorizedError
from braidlog.wire.rights import Grant, Rights
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, parse_tokens, token_entry

NAMES = st.text(alphabet='ab.é"\\\x7f\n', max_size=4)
GRANTS = st.builds(
    Grant,
    st.builds(str.__add__, NAMES, st.sampled_from(["", "*"])).filter(bool),
    st.sampled_from([Role.READ, Role.APPEND, Role.ADMIN]),
)


@pytest.mark.parametrize(
    ("pattern", "log", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders", False),
        ("orders.*", "orders.", True),
        ("orders.*", "orders.eu", True),
        ("orders.*", "ordersXeu", False),
        ("ord*", "orders", True),
        ("ord*", "ord", True),
        ("ord*", "or", False),
        ("*", "anything", True),
        ("Orders", "orders", False),
        ("[a-z]*", "orders", False),
        ("caf\u00e9", "cafe\u0301", False),
        ("a\x00*", "a", False),
    ],
)
def test_names_that_a_pattern_fits(pattern: str, log: str, fits: bool) -> None:
    rights = Rights(Role.NONE, "t", grants=(Grant(pattern, Role.APPEND),))
    assert (rights.on(log) is Role.APPEND) == fits
    assert rights.most is Role.APPEND


@pytest.mark.parametrize("pattern", ["", "**", "a*b", "*a"])
def test_patterns_that_mean_nothing(pattern: str) -> None:
    with pytest.raises(InvalidArgumentError, match="must be the name of a log"):
        Grant(pattern, Role.READ)


def test_a_refusal_names_log_role_and_token() -> None:
    rights = Rights(Role.NONE, "bill", grants=(Grant("a*", Role.READ),))
    with pytest.raises(UnauthorizedError) as caught:
        rights.require("ab", Role.APPEND, "Append")
    assert caught.value.message == (
        "Append on the log 'ab' needs a token of role append; the token 'bill' has "
        "role read there"
    )
    with pytest.raises(UnauthorizedError, match="has no role there"):
        rights.require("b", Role.READ, "Read")


@given(GRANTS, GRANTS, NAMES)
def test_what_covers_another_allows_all_of_it(one: Grant, two: Grant, log: str) -> None:
    if one.covers(two) and two.fits(log):
        assert one.fits(log)
        assert one.role >= two.role


@given(
    st.sampled_from([Role.NONE, Role.READ, Role.ADMIN]),
    st.lists(GRANTS, max_size=3),
    st.sampled_from([Role.NONE, Role.READ, Role.ADMIN]),
    st.lists(GRANTS, max_size=3),
    NAMES,
)
def test_what_lacks_nothing_allows_all_that_there_was(
    old: Role, before: list[Grant], new: Role, now: list[Grant], log: str
) -> None:
    had, has = (
        Rights(old, grants=tuple(before)),
        Rights(new, grants=tuple(now)),
    )
    assert had.lacks(had) == ""
    if not has.lacks(had):
        assert has.on(log) >= had.on(log)


@given(st.lists(GRANTS, min_size=1, max_size=3, unique_by=lambda g: g.pattern))
def test_an_entry_is_read_as_it_was_written(grants: list[Grant]) -> None:
    for role in (Role.NONE, Role.READ):
        text, token = make_token("t", role, bytes(32), grants)
        assert parse_tokens(token_entry(token)).find(text) == token


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("logs = {}", "an entry needs name, role"),
        ('logs = "x"', "logs must be names and roles"),
        ("logs = { a = 1 }", "logs must be names and roles"),
        ('logs = { a = "peer" }', "must be read, append or admin, not peer"),
        ('logs = { a = "none" }', "must be read, append or admin"),
        ('logs = { a = "write" }', "role 'write' does not exist"),
        ('logs = { "a*b" = "read" }', "ends with its only"),
        ('logs = { a = "read" }\nmore = 1', "an entry needs name"),
    ],
)
def test_grants_that_are_refused(lines: str, says: str) -> None:
    text = f'[[token]]\nname = "t"\nsha256 = "{"0" * 64}"\n{lines}\n'
    with pytest.raises(InvalidArgumentError) as caught:
        parse_tokens(text)
    assert says in caught.value.message
    assert "entry 1" in caught.value.message
