"""Token files: read, written, refused; tokens found and not found."""

import pytest

from braidlog.errors import AlreadyExistsError, InvalidArgumentError, UnauthorizedError
from braidlog.wire.messages import Hello
from braidlog.wire.roles import NEEDED, Role, check_role
from braidlog.wire.tokens import (
    ENTROPY_BYTES,
    TOKENS_MAX,
    Token,
    Tokens,
    make_token,
    parse_tokens,
    token_entry,
)

ENTROPY = bytes(range(ENTROPY_BYTES))
TEXT, TOKEN = make_token("billing", Role.APPEND, ENTROPY)


def file_of(**changes: str) -> str:
    fields = {"name": "a", "role": "read", "sha256": "0" * 64} | changes
    return "[[token]]\n" + "".join(f'{k} = "{v}"\n' for k, v in fields.items())


def test_a_new_token_is_found_in_the_file_that_has_it() -> None:
    other = make_token("ops", Role.ADMIN, ENTROPY[::-1])[1]
    tokens = parse_tokens(token_entry(TOKEN) + "\n" + token_entry(other))
    assert len(tokens) == 2
    assert tokens.find(TEXT) == TOKEN
    assert tokens.authorize(Hello(1, 1, "", token=TEXT)).role is Role.APPEND


def test_the_text_is_nowhere_but_with_its_owner() -> None:
    assert TEXT.startswith("braidlog_")
    assert len(TEXT) == len("braidlog_") + 43
    secret = TEXT.removeprefix("braidlog_")
    assert secret not in token_entry(TOKEN)
    assert secret not in repr(TOKEN)
    with pytest.raises(UnauthorizedError) as caught:
        Tokens([]).find(TEXT)
    assert secret not in str(caught.value)


@pytest.mark.parametrize("text", ["", TEXT[:-1], TEXT + "A", TEXT.lower(), "\udcff"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(UnauthorizedError):
        Tokens([TOKEN]).find(text)


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "token = 1",
        "[token]",
        "x = 1",
        "token = [1]",
        file_of(role="root"),
        file_of(name=""),
        file_of(name="a b"),
        file_of(sha256="0" * 63),
        file_of(sha256="A" * 64),
        file_of(extra="x"),
        "[[token]]\nname = 'a'\nrole = 'read'",
        "[[token]]\nname = 'a'\nrole = 'read'\nsha256 = 1",
        "token = " + "[" * 5000,
    ],
)
def test_other_files_are_refused_as_a_whole(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="token file"):
        parse_tokens(text)


def test_an_error_names_the_entry() -> None:
    with pytest.raises(
        InvalidArgumentError, match="entry 2: role 'root' does not exist"
    ):
        parse_tokens(file_of() + file_of(name="b", role="root"))


def test_names_and_hashes_are_there_once() -> None:
    with pytest.raises(AlreadyExistsError, match=r"name .a."):
        parse_tokens(file_of() + file_of(sha256="1" * 64))
    with pytest.raises(AlreadyExistsError, match="sha256"):
        parse_tokens(file_of() + file_of(name="b"))


def test_an_empty_file_lets_nobody_in() -> None:
    tokens = parse_tokens("")
    with pytest.raises(UnauthorizedError):
        tokens.find("")


def test_there_is_a_bound() -> None:
    many = [Token(f"t{n}", Role.READ, f"{n:064x}") for n in range(TOKENS_MAX + 1)]
    assert len(Tokens(many[1:])) == TOKENS_MAX
    with pytest.raises(InvalidArgumentError, match="at most"):
        Tokens(many)


def test_what_is_given_to_a_new_token_is_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="entropy"):
        make_token("a", Role.READ, b"short")
    with pytest.raises(InvalidArgumentError, match="name"):
        make_token('a"', Role.READ, ENTROPY)


def test_a_role_includes_those_before_it() -> None:
    for message, needed in NEEDED.items():
        for role in Role:
            if role >= needed:
                check_role(role, message)
            else:
                with pytest.raises(UnauthorizedError, match=f"role {needed.word}"):
                    check_role(role, message)
