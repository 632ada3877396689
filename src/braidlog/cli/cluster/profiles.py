"""Settings that all nodes of ``braidlog up`` get: from a profile, a file, an option.

Of what is said twice the later counts: profile, settings file, option. Nothing of it is
kept: the next ``up`` on the same directory goes by its own options.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from braidlog.errors import InvalidArgumentError

Settings = dict[str, dict[str, Any]]

PROFILES: Final[Mapping[str, Settings]] = {
    "default": {},
    # A quarter of a file bounds a batch: records of less than 4 MiB.
    "small": {"limits": {"segment_bytes": 16 << 20, "wal_bytes_max": 1 << 30}},
    # Six times the defaults of `braidlog.node.config.TimingSettings`.
    "patient": {
        "timing": {
            "heartbeat_ms": 600,
            "failure_ms": 3_000,
            "tick_ms": 300,
            "slow_ms": 60,
            "slow_after_ms": 12_000,
        }
    },
}

_DECIDED: Final = ("node", "cluster")
"""Sections that differ between nodes, or that make them one cluster."""
_PORT_MAX: Final = (1 << 16) - 1
_PER_NODE: Final = 2


class Ports(click.ParamType):  # type: ignore[type-arg]
    """The first one of consecutive ports, or all of them, two a node."""

    name = "PORT[,PORT...]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the ports that were named: one, or two for each node."""
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and 0 < int(part) <= _PORT_MAX for part in parts):
            self.fail(
                f"{value!r} is not a port from 1 to {_PORT_MAX}, or a list of such",
                param,
                ctx,
            )
        ports = tuple(map(int, parts))
        if len(set(ports)) < len(ports):
            self.fail(f"{value!r} names a port twice", param, ctx)
        if len(ports) > 1 and len(ports) % _PER_NODE:
            self.fail(
                "name the first port, or two for each node: where it listens, and "
                "where its status is",
                param,
                ctx,
            )
        return ports

    @staticmethod
    def of_nodes(ports: tuple[int, ...], nodes: int) -> tuple[int, ...]:
        """Return two ports for each node, if any were named.

        Raises:
            InvalidArgumentError: they are too few or too many, or end beyond 65535.
        """
        count = nodes * _PER_NODE
        if len(ports) == 1:
            ports = tuple(range(ports[0], ports[0] + count))
            if ports[-1] > _PORT_MAX:
                msg = f"{count} ports from {ports[0]} on end beyond {_PORT_MAX}"
                raise InvalidArgumentError(msg)
        if len(ports) not in (0, count):
            msg = f"{nodes} nodes need {count} ports, not {len(ports)}"
            raise InvalidArgumentError(msg)
        return ports


def node_settings(profile: str, config: Path | None, log_level: str | None) -> Settings:
    """Return the sections that each node's settings file gets.

    Raises:
        InvalidArgumentError: the file is no TOML, or says what ``up`` decides.
    """
    found = copy.deepcopy(PROFILES[profile])
    for name, values in _sections(config).items():
        found.setdefault(name, {}).update(values)
    if log_level is not None:
        found.setdefault("log", {})["level"] = log_level
    return found


def _sections(config: Path | None) -> Settings:
    if config is None:
        return {}
    try:
        tables = tomllib.loads(config.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"{config}: {error}") from error
    for name, values in tables.items():
        if name in _DECIDED:
            msg = f"{config}: leave [{name}] out: `braidlog up` decides what is in it"
            raise InvalidArgumentError(msg)
        if not isinstance(values, dict):
            msg = f"{config}: {name!r} is in no section, such as [timing]"
            raise InvalidArgumentError(msg)
    return tables
