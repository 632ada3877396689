"""Tokens: who may do what.

A token file names each token, its role, and the SHA-256 of its text; the text itself is
shown once, when it is made:

    [[token]]
    name = "billing"
    role = "append"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    logs = { "orders.*" = "admin" }
    quotas = { bytes_per_s = 1000000, requests_per_s = 500, connections = 10 }

`logs` has grants: roles on a log, or on all whose names begin alike. With it, the role
in the whole cluster may be left out. `quotas` bounds what the token may use of a node.

*Theory of operation.* The roles are those of `braidlog.wire.roles`. A token has 256
bits of entropy, so its plain hash cannot be searched. All hashes are compared, each in
constant time: the time says neither how much of a token was right nor which it was.

*Invariants.* What is not exactly such a file is refused as a whole. No message and no
`repr` has the text of a token.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from braidlog.errors import AlreadyExistsError, InvalidArgumentError, UnauthorizedError
from braidlog.wire.messages import Hello
from braidlog.wire.proof import key_of
from braidlog.wire.quotas import NO_QUOTAS, Quotas
from braidlog.wire.rights import Grant, Rights
from braidlog.wire.roles import Role

__all__ = [
    "ENTROPY_BYTES",
    "TOKENS_MAX",
    "Token",
    "Tokens",
    "make_token",
    "parse_tokens",
    "token_entry",
]

ENTROPY_BYTES: Final = 32
TOKENS_MAX: Final = 10_000
"""Entries of a file: each is compared at each connection."""

_SHOWN: Final = 8
"""Names that a message repeats."""
_PREFIX: Final = "braidlog_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_NEEDED: Final = {"name", "sha256"}
_FIELDS: Final = {*_NEEDED, "role", "logs", "quotas"}
_GRANTS_MAX: Final = 256
"""Of a token: each is looked at for each request."""


@dataclass(frozen=True, slots=True)
class Token:
    """An entry of a token file."""

    name: str
    role: Role
    sha256: str
    """Of the text of the token, in hexadecimal."""
    grants: tuple[Grant, ...] = ()
    quotas: Quotas = NO_QUOTAS

    @property
    def rights(self) -> Rights:
        """Return what it allows."""
        return Rights(self.role, self.name, self.sha256, self.grants, self.quotas)


class Tokens:
    """The tokens that a node accepts."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        """Take tokens with different names and hashes.

        Raises:
            AlreadyExistsError: two have the same name or hash.
            InvalidArgumentError: there are too many.
        """
        self._tokens = tuple(tokens)
        if len(self._tokens) > TOKENS_MAX:
            count = len(self._tokens)
            raise InvalidArgumentError(
                f"the file has {count} tokens, at most {TOKENS_MAX} are allowed"
            )
        _refuse_twice("name", [token.name for token in self._tokens])
        _refuse_twice("sha256", [token.sha256 for token in self._tokens])
        self._by_hash = {token.sha256: token for token in self._tokens}
        # Only nodes prove themselves.
        peers = (t.sha256 for t in self._tokens if t.role >= Role.PEER)
        self._digests = {key_of(sha256): sha256 for sha256 in peers}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._tokens)

    def __iter__(self) -> Iterator[Token]:
        """Return them in the order of the file."""
        return iter(self._tokens)

    def find(self, text: str) -> Token:
        """Return the entry of a token.

        Raises:
            UnauthorizedError: it is not one of these.
        """
        digest = _digest(text)
        found = [t for t in self._tokens if hmac.compare_digest(t.sha256, digest)]
        if not found:
            reason = (
                "the node does not know this token"
                if text
                else "this cluster asks for a token, and none was given"
            )
            raise UnauthorizedError(reason)
        return found[0]

    def digest(self, key: bytes) -> str:
        """Return the SHA-256 of the token of that name, empty if there is none."""
        return self._digests.get(key, "")

    def authorize(self, hello: Hello) -> Rights:
        """Return what whoever connects may do.

        Raises:
            UnauthorizedError: the token is not one of these.
        """
        return self.find(hello.token).rights

    def of(self, sha256: str) -> Token | None:
        """Return the entry with that hash, None if there is none."""
        return self._by_hash.get(sha256)

    def changes(self, before: Tokens) -> str:
        """Return which entries others had not, by their names; empty if none."""
        old = {token.name: token for token in before}
        new = {token.name: token for token in self}
        differ = [name for name in new if name in old and new[name] != old[name]]
        told = {
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "changed": differ,
        }
        return "; ".join(
            f"{what} {_some(names)}" for what, names in told.items() if names
        )


def parse_tokens(text: str) -> Tokens:
    """Return the tokens of a file.

    Raises:
        InvalidArgumentError: it is not a token file; the message says where.
    """
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidArgumentError(f"token file: {error}") from error
    entries = document.pop("token", [])
    if document or not isinstance(entries, list):
        raise InvalidArgumentError("token file: only [[token]] entries are allowed")
    return Tokens(_parse(number, entry) for number, entry in enumerate(entries, 1))


def make_token(
    name: str,
    role: Role,
    entropy: bytes,
    grants: Iterable[Grant] = (),
    quotas: Quotas = NO_QUOTAS,
) -> tuple[str, Token]:
    """Return the text of a new token, for its owner alone, and the entry for the file.

    Raises:
        InvalidArgumentError: the name or the amount of entropy is not allowed.
    """
    if len(entropy) != ENTROPY_BYTES:
        given = len(entropy)
        raise InvalidArgumentError(f"{given} bytes of entropy, not {ENTROPY_BYTES}")
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"a token name may have letters, digits and ._- only, got {name[:64]!r}"
        )
    text = _PREFIX + urlsafe_b64encode(entropy).decode().rstrip("=")
    return text, Token(name, role, _digest(text), tuple(grants), quotas)


def token_entry(token: Token) -> str:
    """Return the lines of a token file for one token."""
    fields = {"name": token.name, "role": token.role.word, "sha256": token.sha256}
    if token.role is Role.NONE:
        del fields["role"]
    lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
    if token.grants:
        # A text of JSON is one of TOML, but for this character.
        names = (json.dumps(each.pattern, ensure_ascii=False) for each in token.grants)
        roles = (f'"{each.role.word}"' for each in token.grants)
        pairs = (f"{name} = {role}" for name, role in zip(names, roles, strict=True))
        lines.append(f"logs = {{ {', '.join(pairs)} }}".replace("\x7f", "\\u007f"))
    if given := token.quotas.given:
        numbers = ", ".join(f"{name} = {most}" for name, most in given.items())
        lines.append(f"quotas = {{ {numbers} }}")
    return "\n".join(["[[token]]", *lines, ""])


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _parse(number: int, entry: Any) -> Token:
    where = f"token file, entry {number}"
    whole = isinstance(entry, dict) and ("role" in entry or entry.get("logs"))
    if not whole or not _NEEDED <= set(entry) <= _FIELDS:
        raise InvalidArgumentError(
            f"{where}: an entry needs name, role, sha256, and may have logs and "
            "quotas; with logs, role may be left out"
        )
    name, role, sha256 = entry["name"], entry.get("role", "none"), entry["sha256"]
    logs = entry.get("logs", {})
    if not all(isinstance(value, str) for value in (name, role, sha256)):
        raise InvalidArgumentError(f"{where}: all values must be text in quotes")
    if not isinstance(logs, dict) or not all(map(_is_text, logs.values())):
        raise InvalidArgumentError(
            f'{where}: logs must be names and roles, such as {{ "orders.*" = "read" }}'
        )
    if len(logs) > _GRANTS_MAX:
        raise InvalidArgumentError(
            f"{where}: logs has {len(logs)} grants, at most {_GRANTS_MAX} are allowed"
        )
    if not _NAME.fullmatch(name):
        raise InvalidArgumentError(
            f"{where}: {name[:64]!r} cannot be the name of a token"
        )
    if not _SHA256.fullmatch(sha256):
        raise InvalidArgumentError(f"{where}: sha256 must be 64 hexadecimal digits")
    try:
        grants = (Grant(each, Role.named(word)) for each, word in logs.items())
        quotas = Quotas.parse(entry.get("quotas", {}))
        token = Token(name, Role.named(role), sha256, tuple(grants), quotas)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{where}: {error.message}") from error
    if token.role is Role.PEER and quotas.given:
        raise InvalidArgumentError(f"{where}: a token of role peer has no quotas")
    return token


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _refuse_twice(field: str, values: list[str]) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise AlreadyExistsError(
                f"token file: two entries have the {field} {value!r}"
            ).advising("Remove one of the two entries")
        seen.add(value)
