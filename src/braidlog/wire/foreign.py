"""What else may be on the other end of a connection, by its first bytes.

*Invariants.* No frame of a handshake begins like any of these: read as its length they
are more than `HANDSHAKE_BYTES_MAX`.
"""

from __future__ import annotations

from typing import Final

from braidlog.errors import ForeignPeerError

__all__ = ["FIRST_BYTES", "check_first", "foreign"]

FIRST_BYTES: Final = 4
"""Enough to tell."""

_TLS_RECORDS: Final = frozenset({0x15, 0x16})
"""An alert, or a handshake."""
_TLS_MAJOR: Final = 3
_WORDS: Final = {
    b"SSH-": "SSH",
    b"HTTP": "HTTP",
    b"GET ": "HTTP",
    b"HEAD": "HTTP",
    b"POST": "HTTP",
    b"PUT ": "HTTP",
    b"OPTI": "HTTP",
    b"PRI ": "HTTP",
}


def foreign(first: bytes) -> str:
    """Return what speaks like this, empty if it is nothing that is known."""
    if len(first) < FIRST_BYTES:
        return ""
    # The version of a record is 3.1 in a ClientHello, up to 3.4 in theory; 3.0 is dead.
    if first[0] in _TLS_RECORDS and first[1] == _TLS_MAJOR and first[2]:
        return "TLS"
    return _WORDS.get(first[:FIRST_BYTES], "")


def check_first(first: bytes) -> None:
    """Refuse what is no connection of this protocol.

    Raises:
        ForeignPeerError: it begins like another one.
    """
    speaks = foreign(first)
    if speaks == "TLS":
        msg = "the other side uses TLS, but this side does not"
    elif speaks:
        msg = f"the other side speaks {speaks}; it is not a Braidlog node"
    else:
        return
    raise ForeignPeerError(msg, speaks=speaks)
