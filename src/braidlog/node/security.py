"""TLS and tokens of whoever listens: from settings to what connections use."""

from __future__ import annotations

import ssl
from pathlib import Path

from braidlog.errors import InvalidArgumentError
from braidlog.node.config import SecuritySettings
from braidlog.wire.server import Authorizer, allow_all
from braidlog.wire.tokens import parse_tokens

__all__ = ["authorizer", "contexts", "peer_token"]


def authorizer(security: SecuritySettings) -> Authorizer:
    """Return what gives a connection its role; everybody has all without tokens.

    Raises:
        InvalidArgumentError: the file of tokens cannot be read, or is none.
    """
    file = security.tokens
    if not file:
        return allow_all
    return parse_tokens(_text(file)).authorize


def peer_token(security: SecuritySettings) -> str:
    """Return the token that this side shows to its peers.

    Raises:
        InvalidArgumentError: the file cannot be read.
    """
    file = security.peer_token
    return _text(file).strip() if file else ""


def _text(file: str) -> str:
    try:
        return Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{file}: {error}"
        raise InvalidArgumentError(msg) from error


def contexts(
    security: SecuritySettings,
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return what servers and clients of this process use; None without TLS.

    Raises:
        InvalidArgumentError: a file cannot be read, or does not fit.
    """
    if not security.certificate:
        return None, None
    try:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(security.certificate, security.key)
        client = ssl.create_default_context(cafile=security.authority or None)
    except (OSError, ssl.SSLError) as error:
        msg = f"[security] certificate, key or authority: {error}"
        raise InvalidArgumentError(msg) from error
    return server, client
