"""Quotas of tokens: how files say them, and what they keep out of the core."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import InvalidArgumentError
from braidlog.wire.messages import Hello
from braidlog.wire.quotas import QUOTA_MAX, Quotas
from braidlog.wire.rights import Grant
from braidlog.wire.roles import Role
from braidlog.wire.tokens import Tokens, make_token, parse_tokens, token_entry
from unit.wire.pair import Pair, settings

NUMBERS = st.integers(0, QUOTA_MAX)
QUOTAS = st.builds(Quotas, NUMBERS, NUMBERS, NUMBERS)


@given(QUOTAS, st.booleans())
def test_an_entry_is_read_as_it_was_written(quotas: Quotas, granted: bool) -> None:
    grants = (Grant("a*", Role.APPEND),) if granted else ()
    text, token = make_token("t", Role.READ, bytes(32), grants, quotas)
    found = parse_tokens(token_entry(token)).find(text)
    assert found == token
    assert found.rights.quotas == quotas
    assert quotas.rates == bool({"bytes_per_s", "requests_per_s"} & set(quotas.given))


def test_without_quotas_an_entry_is_as_it_was() -> None:
    _, token = make_token("t", Role.READ, bytes(32))
    assert "quotas" not in token_entry(token)
    assert token.quotas == Quotas()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("5", "quotas must be names and numbers"),
        ("[5]", "quotas must be names and numbers"),
        ('"5"', "quotas must be names and numbers"),
        ("{ bytes = 5 }", "'bytes' does not exist (there are: bytes_per_s, req"),
        ("{ requests_per_s = 0 }", "requests_per_s must be a whole number from 1 "),
        ("{ requests_per_s = -1 }", "must be a whole number from 1 to"),
        ("{ requests_per_s = 0.5 }", "must be a whole number from 1 to"),
        ("{ connections = true }", "connections must be a whole number"),
        ('{ bytes_per_s = "1MB" }', "got 1MB"),
        (f"{{ bytes_per_s = {QUOTA_MAX + 1} }}", f"from 1 to {QUOTA_MAX}"),
    ],
)
def test_quotas_that_are_refused(value: str, says: str) -> None:
    entry = f'[[token]]\nname = "t"\nrole = "read"\nsha256 = "{"0" * 64}"\n'
    with pytest.raises(InvalidArgumentError) as caught:
        parse_tokens(f"{entry}quotas = {value}\n")
    assert says in caught.value.message
    assert caught.value.message.startswith("token file, entry 1: quotas")


def test_nodes_have_none() -> None:
    entry = f'[[token]]\nname = "t"\nrole = "peer"\nsha256 = "{"0" * 64}"\n'
    with pytest.raises(InvalidArgumentError, match="role peer has no quotas"):
        parse_tokens(f"{entry}quotas = {{ connections = 1 }}\n")


@pytest.mark.parametrize(
    ("quotas", "hot"),
    [
        (Quotas(), True),
        (Quotas(connections=1), True),
        (Quotas(requests_per_s=1), False),
        (Quotas(bytes_per_s=1), False),
    ],
)
def test_counted_appends_do_not_pass_the_node_by(quotas: Quotas, hot: bool) -> None:
    text, token = make_token("t", Role.APPEND, bytes(32), quotas=quotas)
    said = settings(authorize=Tokens([token]).authorize)
    pair = Pair(Hello(1, 1, "test", token=text), said).greet()
    assert pair.server.core.hot is hot
    for changed, then in ((Quotas(), True), (Quotas(bytes_per_s=9), False)):
        pair.server.change_quotas(changed)
        assert pair.server.core.hot is then
    pair.server.change_quotas(Quotas())
    # Whoever said goodbye sends nothing more that the core could take.
    pair.client.goodbye()
    pair.to_server()
    pair.server.change_quotas(Quotas())
    assert pair.server.core.hot is False


def test_a_reader_is_not_made_hot() -> None:
    text, token = make_token("t", Role.READ, bytes(32), quotas=Quotas(bytes_per_s=1))
    said = settings(authorize=Tokens([token]).authorize)
    pair = Pair(Hello(1, 1, "test", token=text), said).greet()
    pair.server.change_quotas(Quotas())
    assert pair.server.core.hot is False
