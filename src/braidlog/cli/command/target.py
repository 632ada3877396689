"""Which cluster a command talks to, and how it gets in."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog.cli.command.failures import NOT_FOUND, USAGE, Problem

if TYPE_CHECKING:
    from braidlog.client import Client
    from braidlog.client.connection.look import Look

_PROBE_S: Final = 1.5
_PROBES_MAX: Final = 16
_HINT: Final = (
    "check --cluster or BRAIDLOG_CLUSTER; `braidlog up` starts a cluster here"
)
# A file with more than this is not one token.
_TOKEN_CHARACTERS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster: addresses of some of its nodes, a token, who signs certificates."""

    seeds: str
    token: str = field(default="", repr=False)
    authority: Path | None = None

    @contextmanager
    def connect(self, *, timeout_s: float | None = None) -> Iterator[Client]:
        """Connect to the cluster, whose answers may take `timeout_s`.

        Raises:
            Problem: No node can be reached.
        """
        # Late: everything else works without the extra that this needs.
        from braidlog.client import ClientSettings, connect
        from braidlog.client.connection.routing import parse_seeds

        seeds, context = parse_seeds(self.seeds), self.context()
        probe(seeds, "node", _HINT)
        settings = ClientSettings(timeout_s=timeout_s) if timeout_s else None
        with connect(seeds, token=self.token, ssl=context, settings=settings) as client:
            yield client

    def look(self) -> Look:
        """Return what there is to see of the cluster, within two seconds.

        Raises:
            Problem: no node says anything.
        """
        from braidlog.client import connect
        from braidlog.client.connection.routing import parse_seeds

        seeds = parse_seeds(self.seeds)
        client = connect(seeds, token=self.token, ssl=self.context())
        try:
            found = client.look()
        finally:
            client.close()
        if found.newest is None and found.judged is None:
            said = [
                found.silent[seed].message
                if seed in found.silent
                else f"{seed} did not answer in time"
                for seed in seeds
            ]
            text = f"no node reports the state of the cluster ({'; '.join(said)})"
            raise Problem(text, _HINT, NOT_FOUND)
        return found

    def context(self) -> ssl.SSLContext | None:
        """Return what TLS connections use; None without TLS.

        Raises:
            Problem: The file holds no certificate.
        """
        if self.authority is None:
            return None
        try:
            return ssl.create_default_context(cafile=self.authority)
        except ssl.SSLError as error:
            text = f"{self.authority} holds no certificate: {error.reason or error}"
            raise Problem(text, "--tls-ca needs a file in PEM format", USAGE) from None


def probe(seeds: tuple[str, ...], what: str, hint: str) -> None:
    """Fail at once where a client would go on trying: nobody is there at all.

    Raises:
        Problem: Nothing listens at any of the addresses.
    """
    # All at a time: one that swallows what it is sent must not hold up the rest.
    pool = ThreadPoolExecutor(min(_PROBES_MAX, len(seeds)))
    try:
        reasons = []
        for reason in as_completed([pool.submit(_refusal, seed) for seed in seeds]):
            if not reason.result():
                return
            reasons.append(reason.result())
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    text = f"no {what} can be reached ({'; '.join(sorted(reasons))})"
    raise Problem(text, hint, NOT_FOUND)


def _refusal(seed: str) -> str:
    """Return why nobody can be reached at an address; empty if somebody can."""
    host, _, port = seed.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_S).close()
    except OSError as error:
        return f"{seed}: {error.strerror or error}"
    return ""


def token_of(token: str | None, file: Path | None) -> str:
    """Return the token that was given, in a file or as text; empty if none was.

    Raises:
        Problem: The file does not hold one token.
    """
    if file is None:
        return (token or "").strip()
    text = file.read_text(encoding="utf-8", errors="replace")
    found = text.split()
    if len(found) != 1 or len(text) > _TOKEN_CHARACTERS_MAX:
        hint = (
            "the file must hold the text that `braidlog token create` printed, "
            "and nothing else"
        )
        raise Problem(f"{file} does not hold exactly one token", hint, USAGE)
    return found[0]
