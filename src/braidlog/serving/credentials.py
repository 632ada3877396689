"""The files of [security] as a process uses them, and how new ones take their place.

*Theory of operation.* All files are read before anything is used of them, so what does
not fit together is refused as a whole, and the process goes on with what it had. A
connection keeps the certificate that it began with. Who is in the middle of saying who
it is, is judged by the newest tokens.
"""

from __future__ import annotations

import hashlib
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from braidlog.errors import InvalidArgumentError
from braidlog.serving.security import (
    certificate_channel,
    contexts,
    file_bytes,
    peer_token,
    tokens_of,
)
from braidlog.serving.settings import SecuritySettings
from braidlog.wire.messages import Hello
from braidlog.wire.proof import NONCE_BYTES, Challenger
from braidlog.wire.quotas import NO_QUOTAS, Quotas
from braidlog.wire.rights import Rights
from braidlog.wire.server import allow_all
from braidlog.wire.tokens import Tokens

_FILES: Final = ("certificate", "key", "authority", "tokens", "peer_token")
_ATTEMPTS: Final = 3
"""To read files that nobody changes meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What the files say, all at one time."""

    security: SecuritySettings
    tokens: Tokens | None
    """None: nobody is asked for one."""
    peer_token: str
    server: ssl.SSLContext | None
    client: ssl.SSLContext | None
    channel: bytes
    """What proofs are bound to: of the certificate; empty without TLS."""
    digests: Mapping[str, str]
    """SHA-256 of each file, by its setting."""

    def changes(self, before: Credentials) -> list[str]:
        """Return what differs from before, for people."""
        differ = [
            name
            for name in _FILES
            if self.digests.get(name) != before.digests.get(name)
        ]
        told = [f"[security] {name}" for name in differ if name != "tokens"]
        old, new = before.tokens, self.tokens
        changes = new.changes(old) if new is not None and old is not None else ""
        return [*told, f"[security] tokens: {changes}"] if changes else told


def read_credentials(security: SecuritySettings) -> Credentials:
    """Read all files.

    Raises:
        InvalidArgumentError: one of them cannot be read or does not fit; the message
            names the setting.
    """
    for _ in range(_ATTEMPTS):
        digests = _digests(security)
        server, client = contexts(security)
        found = Credentials(
            security=security,
            tokens=tokens_of(security),
            peer_token=peer_token(security),
            server=server,
            client=client,
            channel=certificate_channel(security),
            digests=digests,
        )
        # A certificate and the key of another one may have been read, or half a file.
        if digests == _digests(security):
            return found
    raise InvalidArgumentError(
        "the files of [security] changed while they were read: move whole files into "
        "place, then reload"
    )


def _digests(security: SecuritySettings) -> dict[str, str]:
    files = {name: getattr(security, name) for name in _FILES}
    if not security.certificate:
        files |= dict.fromkeys(("key", "authority"), "")  # Nobody uses them.
    return {
        name: hashlib.sha256(file_bytes(name, file)).hexdigest()
        for name, file in files.items()
        if file
    }


class Keyring:
    """The credentials that are in force."""

    def __init__(self, credentials: Credentials) -> None:
        """Begin with some; `credentials` is set to replace them."""
        self.credentials = credentials

    def authorize(self, hello: Hello) -> Rights:
        """Return what whoever connects may do; everybody has all without tokens.

        Raises:
            UnauthorizedError: the token is not known.
        """
        tokens = self.credentials.tokens
        return allow_all(hello) if tokens is None else tokens.authorize(hello)

    def challenger(self) -> Challenger | None:
        """Return what proves this node from now on; None without tokens."""
        if self.credentials.tokens is None:
            return None
        return Challenger(
            find=self._digest,
            draw=lambda: secrets.token_bytes(NONCE_BYTES),
            channel=self.credentials.channel,
        )

    def _digest(self, key: bytes) -> str:
        tokens = self.credentials.tokens
        return "" if tokens is None else tokens.digest(key)

    def quotas_of(self, sha256: str) -> Quotas:
        """Return the quotas of the token with that hash; none if there is no such."""
        tokens = self.credentials.tokens
        token = tokens.of(sha256) if tokens is not None else None
        return NO_QUOTAS if token is None else token.quotas

    def ends(self, rights: Rights) -> str:
        """Return why a connection with these rights has to end; empty if it has not."""
        tokens = self.credentials.tokens
        if tokens is None or not rights.sha256:
            return ""
        token = tokens.of(rights.sha256)
        if token is None:
            return f"the token {rights.token!r} was removed from this node"
        if lacks := token.rights.lacks(rights):
            return f"the token {rights.token!r} allows less than before: {lacks}"
        return ""
