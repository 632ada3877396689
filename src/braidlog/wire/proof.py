"""How two nodes prove to one another that they know a token, without sending it.

*Theory of operation.* The node that connects has the text of its token, the other one
its SHA-256 from the file of tokens. It says in `Hello` a name of the token, that nobody
can compute who does not know it, and a nonce. The other node answers with a nonce and
proves that it knows the hash (`Challenge`): only then the first goes on. It sends the
text under a mask that only the hash opens (`Proof`), so that whoever is between them
learns nothing, and whoever has stolen the file of tokens cannot take its place:

    proof    HMAC-SHA256(hash, "braidlog server" transcript)
    mask     SHAKE-256(HMAC-SHA256(hash, "braidlog client" transcript))
    Proof    text xor mask

The transcript has both nonces, the cluster, both nodes, and the certificate that was
seen, so what was said on one connection proves nothing on another, nor through a third
that ends TLS in between. It is SCRAM (RFC 5802) with a hash that needs no salt: a token
has 256 random bits.

*Invariants.* The text of a token is never sent as it is. Neither a proof nor a masked
text counts twice.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from braidlog.errors import RemoteProtocolError
from braidlog.wire.messages import Challenge, Hello, Proof

__all__ = ["NONCE_BYTES", "Challenger", "Exchange", "Secret", "key_of", "proving"]

NONCE_BYTES: Final = 32
_KEY_BYTES: Final = 16
_UNPROVED: Final = "it could not prove that it knows this node's token"


def key_of(digest: str) -> bytes:
    """Return the name of the token with that SHA-256, in hexadecimal."""
    named = hashlib.sha256(b"braidlog token " + bytes.fromhex(digest))
    return named.digest()[:_KEY_BYTES]


def proving(hello: Hello, token: str, nonce: bytes) -> Hello:
    """Return the greeting of a node that proves its token and does not send it."""
    key = key_of(_digest(token))
    return msgspec.structs.replace(hello, token="", nonce=nonce, key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenger:
    """How a node proves itself to those that connect."""

    find: Callable[[bytes], str]
    """Gives the SHA-256 of the token of that name, empty if there is none."""
    draw: Callable[[], bytes]
    """Gives a nonce."""
    channel: bytes = b""
    """SHA-256 of the certificate of the node; empty without TLS."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """What both sides of a connection know of a proof."""

    digest: str
    hello: Hello
    node: int
    """The node that was connected to."""
    nonce: bytes
    """Its nonce."""
    channel: bytes

    def proof(self) -> bytes:
        """Return what the node that was connected to proves itself with."""
        return self._keyed(b"braidlog server")

    def mask(self, text: bytes) -> bytes:
        """Return a text under the mask, or from under it."""
        mask = hashlib.shake_256(self._keyed(b"braidlog client")).digest(len(text))
        return bytes(a ^ b for a, b in zip(text, mask, strict=True))

    def token(self, proof: Proof) -> str:
        """Return the text of the token that the other side has; it may be any text."""
        return self.mask(proof.token).decode("utf-8", "replace")

    def _keyed(self, purpose: bytes) -> bytes:
        hello = self.hello
        transcript = msgspec.msgpack.encode(
            (
                purpose,
                hello.cluster,
                hello.node,
                hello.identity,
                hello.nonce,
                self.node,
                self.nonce,
                self.channel,
            )
        )
        key = bytes.fromhex(self.digest)
        return hmac.digest(key, transcript, "sha256")


@dataclass(slots=True)
class Secret:
    """The token of a node that connects, and whom it wants to speak to."""

    token: str
    node: int
    channel: bytes = b""
    """SHA-256 of the certificate that the other side shows; empty without TLS."""
    proved: bool = False
    """Whether the other side knows the token."""

    def answer(self, hello: Hello, challenge: Challenge) -> Proof:
        """Return the proof, when the other side has proved itself.

        Raises:
            RemoteProtocolError: it has not, or is another node.
        """
        if challenge.node != self.node:
            msg = f"node {challenge.node} answered in place of node {self.node}"
            raise RemoteProtocolError(msg)
        digest, nonce = _digest(self.token), challenge.nonce
        exchange = Exchange(digest, hello, self.node, nonce, self.channel)
        if not hmac.compare_digest(exchange.proof(), challenge.proof):
            raise RemoteProtocolError(_UNPROVED)
        self.proved = True
        return Proof(exchange.mask(self.token.encode()))

    def require(self) -> None:
        """Refuse to speak to who has proved nothing.

        Raises:
            RemoteProtocolError: it has not.
        """
        if not self.proved:
            raise RemoteProtocolError(_UNPROVED)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
