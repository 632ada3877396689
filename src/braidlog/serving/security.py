"""TLS and tokens of whoever listens: from settings to what connections use."""

from __future__ import annotations

import hashlib
import re
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from braidlog.errors import InvalidArgumentError, LogError, UnauthorizedError
from braidlog.serving.settings import SecuritySettings, host_and_port
from braidlog.wire.roles import Role
from braidlog.wire.tokens import Tokens, parse_tokens

# The certificate of the node is the first.
_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL
)
_NO_PEM: Final = "the file has no certificate in PEM format"


def tokens_of(security: SecuritySettings) -> Tokens | None:
    """Return the tokens that are accepted; None: nobody is asked for one.

    Raises:
        InvalidArgumentError: the file of tokens cannot be read, or is none.
    """
    return _tokens(security.tokens) if security.tokens else None


def peer_token(security: SecuritySettings) -> str:
    """Return the token that this side shows to its peers.

    Raises:
        InvalidArgumentError: the file cannot be read, or the file of tokens says that
            peers would refuse it.
    """
    file = security.peer_token
    if not file:
        return ""
    text = _text("peer_token", file).strip()
    if security.tokens:
        try:
            token = _tokens(security.tokens).find(text)
        except UnauthorizedError:
            return text  # The files of the peers may have others.
        if token.role < Role.PEER:
            has = (
                f"the token {token.name!r} of {security.tokens} has the role "
                f"{token.role.word}"
            )
            raise _wrong(
                "peer_token", file, f"a node needs a token of role peer, but {has}"
            )
    return text


def certificate_channel(security: SecuritySettings) -> bytes:
    """Return what proofs are bound to: of the certificate; empty without TLS.

    Raises:
        InvalidArgumentError: the file cannot be read, or has no certificate.
    """
    file = security.certificate
    if not file:
        return b""
    pem = _PEM.search(file_bytes("certificate", file))
    if pem is None:
        raise _wrong("certificate", file, _NO_PEM)
    return channel_of(ssl.PEM_cert_to_DER_cert(pem[0].decode("ascii")))


def channel_of(certificate: bytes) -> bytes:
    """Return what proofs over a connection with this certificate are bound to."""
    return hashlib.sha256(certificate).digest()


def _wrong(setting: str, file: str, why: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"[security] {setting} = {file!r}: {why}")


def _tokens(file: str) -> Tokens:
    text = _text("tokens", file)
    try:
        return parse_tokens(text)
    except LogError as error:
        raise _wrong("tokens", file, error.message) from error


def file_bytes(setting: str, file: str) -> bytes:
    """Return what a file has that a setting names.

    Raises:
        InvalidArgumentError: it cannot be read.
    """
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise _wrong(setting, file, error.strerror or error) from error


def _text(setting: str, file: str) -> str:
    try:
        return file_bytes(setting, file).decode()
    except UnicodeDecodeError as error:
        raise _wrong(setting, file, "the file is not UTF-8 text") from error


def contexts(
    security: SecuritySettings,
) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Return what servers and clients of this process use; None without TLS.

    Raises:
        InvalidArgumentError: a file cannot be read, or does not fit.
    """
    if not security.certificate:
        return None, None
    # OpenSSL does not say which of the files it cannot read.
    for setting in ("certificate", "key", "authority"):
        if file := getattr(security, setting):
            file_bytes(setting, file)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        server.load_cert_chain(security.certificate, security.key)
    except (OSError, ssl.SSLError) as error:
        raise _unfit(security, error) from error
    try:
        client = ssl.create_default_context(cafile=security.authority or None)
    except (OSError, ssl.SSLError) as error:
        raise _wrong("authority", security.authority, _NO_PEM) from error
    return server, client


def distrust(
    security: SecuritySettings,
    address: str,
    server: ssl.SSLContext,
    client: ssl.SSLContext,
) -> str:
    """Return why nodes with the same ``authority`` would not connect here, if so.

    It is what they would do: both sides of a handshake, in memory.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    host, _ = host_and_port(address)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for side in (theirs, ours, theirs):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return (
            f"[security] certificate = {security.certificate!r}: other nodes do not "
            f"connect to {address}, because {error.verify_message}. Renew it for "
            "this address, signed by [security] authority, and check the clock"
        )
    return ""


def _unfit(security: SecuritySettings, error: OSError) -> InvalidArgumentError:
    """Find out which of certificate and key it is: OpenSSL does not say."""
    if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
        why = f"the key does not belong to the certificate {security.certificate}"
        return _wrong("key", security.key, why)
    try:
        ssl.create_default_context(cafile=security.certificate)
    except (OSError, ssl.SSLError):
        return _wrong("certificate", security.certificate, _NO_PEM)
    return _wrong(
        "key", security.key, f"the file has no private key in PEM format ({error})"
    )
