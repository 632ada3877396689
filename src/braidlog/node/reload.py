"""Which settings a node takes over while it runs, and which wait for its next start.

*Theory of operation.* Names of files and the level of the log are taken over. Whether
there is TLS, tokens or a peer token at all is not: the loop, the peers and open
connections depend on it. Everything else was used when the node started.

*Invariants.* Nothing is passed over in silence: what differs is in force or is named.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from braidlog.node.config import NodeConfig
from braidlog.serving.settings import SecuritySettings

__all__ = ["Difference", "ReloadCounters", "compare"]

_TOGETHER: Final = (
    ("certificate", ("certificate", "key", "authority")),
    ("tokens", ("tokens",)),
    ("peer_token", ("peer_token",)),
)
"""Settings that are taken over together, unless the first is new or gone."""


@dataclass(slots=True)
class ReloadCounters:
    """Totals since the start."""

    reloads: int = 0
    """Reloads that are in force."""
    reloads_refused: int = 0
    """Reloads that changed nothing, for something was wrong."""
    connections_revoked: int = 0
    """Connections closed because their token was removed or allows less."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What follows from settings that were read again."""

    config: NodeConfig
    """What is in force afterwards."""
    changed: list[str]
    ignored: list[str]
    """Settings that wait for the next start."""


def compare(running: NodeConfig, said: NodeConfig) -> Difference:
    """Compare what is in force with what the settings say now."""
    changed, ignored = [], []
    security = running.security
    for first, names in _TOGETHER:
        differ = [n for n in names if getattr(said.security, n) != getattr(security, n)]
        if bool(getattr(said.security, first)) != bool(getattr(security, first)):
            ignored += [f"[security] {name}" for name in differ]
            continue
        security = replace(
            security, **{name: getattr(said.security, name) for name in names}
        )
    rest = {name for _, names in _TOGETHER for name in names}
    ignored += [
        f"[security] {each.name}"
        for each in fields(SecuritySettings)
        if each.name not in rest
        and getattr(said.security, each.name) != getattr(running.security, each.name)
    ]
    for section in fields(NodeConfig):
        if section.name in ("security", "log"):
            continue
        old, new = getattr(running, section.name), getattr(said, section.name)
        ignored += [
            f"[{section.name}] {each.name}"
            for each in fields(old)
            if getattr(old, each.name) != getattr(new, each.name)
        ]
    if said.log != running.log:
        changed.append(f"[log] level: {said.log.level}")
    return Difference(
        replace(running, security=security, log=said.log), changed, ignored
    )
