"""Where a process listens, and what protects it: addresses, TLS, tokens."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from braidlog.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """TLS and tokens. Paths are relative to the directory of the file."""

    certificate: str = ""
    """PEM certificate chain of the node."""
    key: str = ""
    """PEM private key."""
    authority: str = ""
    """PEM certificates that peers are checked against."""
    tokens: str = ""
    """File of tokens and roles, made by `braidlog token create`."""
    peer_token: str = ""
    """File with the token that the node proves to its peers."""
    peer_proof: bool = True
    """Speak only to peers that prove that they know that token, and send it under a
    mask. Off while nodes of an earlier version run: it is sent as it is."""
    insecure: bool = False
    """Listen beyond loopback without TLS and tokens."""


def host_and_port(address: str, what: str = "address") -> tuple[str, int]:
    """Split host:port; IPv6 hosts stand in brackets.

    Raises:
        InvalidArgumentError: it is not that.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not int(port) < 1 << 16:
        msg = f"{what}: {address!r} must be host:port, such as 10.0.0.1:7400"
        raise InvalidArgumentError(msg)
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_exposure(listens: Mapping[str, str], security: SecuritySettings) -> None:
    """Refuse to listen beyond loopback without TLS and tokens.

    ``listens`` has the addresses by the settings that they come from; empty ones are
    passed over.

    Raises:
        InvalidArgumentError: names the setting.
    """
    if bool(security.certificate) != bool(security.key):
        msg = "[security] certificate and key must both be set, or neither"
        raise InvalidArgumentError(msg)
    exposed = [
        setting
        for setting, address in listens.items()
        if address and not _is_loopback(host_and_port(address, setting)[0])
    ]
    protected = security.certificate and security.tokens
    if exposed and not protected and not security.insecure:
        raise InvalidArgumentError(
            f"{exposed[0]} is reachable from other machines without TLS and "
            "tokens. Set [security] certificate, key and tokens, or insecure = "
            "true if the network is trusted"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
