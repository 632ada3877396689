"""Where the nodes of a local cluster listen: chosen once, kept in its directory.

The nodes know one another by these ports, so a cluster that came back with others would
not find itself. They are in `ports.json`, and in the settings of each node as well.

Between the choice and the start of the node, the system could give the port to another
program that asks for any port, or to an outgoing connection. So a `Reservation` keeps a
socket bound to it that never listens. The node binds beside that socket, because both
say SO_REUSEADDR; while the node is down, Linux refuses connections to the port.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import tomllib
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from braidlog.errors import InvalidArgumentError, UnavailableError

_PORT_MAX = (1 << 16) - 1


class Reservation:
    """Ports of 127.0.0.1 that nobody else gets until `close`, or until it is gone."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: dict[int, int] = {}
        # Descriptors, not sockets: those would warn if nobody closed the cluster.
        self._end = weakref.finalize(self, _let_go, self._held, ())

    def choose(self, count: int) -> list[int]:
        """Return ports that are free, and hold them."""
        return [self._bind(0) for _ in range(count)]

    def hold(self, ports: Iterable[int]) -> None:
        """Hold these as well.

        Raises:
            UnavailableError: something listens there; the message names the port.
        """
        for port in ports:
            if port not in self._held:
                try:
                    self._bind(port)
                except OSError as error:
                    msg = f"port {port} is in use: {error.strerror}"
                    raise UnavailableError(msg) from error

    def hold_only(self, ports: Iterable[int]) -> None:
        """Let go of all others."""
        _let_go(self._held, set(ports))

    def close(self) -> None:
        """Let go of all."""
        _let_go(self._held, ())

    def _bind(self, port: int) -> int:
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", port))
            bound = int(held.getsockname()[1])
            self._held[bound] = held.detach()
        return bound


def _let_go(held: dict[int, int], kept: Iterable[int]) -> None:
    for port in held.keys() - set(kept):
        os.close(held.pop(port))


def kept_ports(directory: Path) -> list[int]:
    """Return the ports of the cluster in a directory, two a node; else none.

    Raises:
        InvalidArgumentError: nodes are there, and nothing says which ports they have.
    """
    try:
        kept = json.loads((directory / "ports.json").read_bytes())
    except (FileNotFoundError, ValueError):
        kept = None
    return kept if _are_ports(kept) else _ports_of_settings(directory)


def keep_ports(
    directory: Path, nodes: int, held: Reservation, wanted: Sequence[int] = ()
) -> list[int]:
    """Return the ports of the cluster in a directory; choose them if there is none.

    Of several that do it at a time all get the same. `held` has those that were chosen.
    Those that are `wanted` are chosen, if any are.

    Raises:
        InvalidArgumentError: the cluster has another number of nodes, or other ports
            than those that are wanted.
        UnavailableError: one that is wanted is taken; nothing is chosen.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ports = kept_ports(directory)
    if not ports:
        held.hold(wanted)
        ports = _chosen(directory, list(wanted) or held.choose(2 * nodes))
    held.hold_only(ports)
    if wanted and ports != list(wanted):
        used = ",".join(map(str, ports))
        raise InvalidArgumentError(
            f"{directory} has a cluster at the ports {used}, by which its nodes know "
            "one another: leave the ports out, or choose another directory"
        )
    if len(ports) != 2 * nodes:
        there = len(ports) // 2
        nouns = "node" if there == 1 else "nodes"
        msg = f"{directory} has a cluster of {there} {nouns}, not of {nodes}"
        raise InvalidArgumentError(msg)
    write_whole(directory / "ports.json", json.dumps(ports))
    return ports


def write_whole(file: Path, text: str) -> None:
    """Let a file have a text; who reads it meanwhile sees all of it or what was."""
    if not file.exists() or file.read_text(errors="replace") != text:
        # Not by `durable`: a cluster for tests can be made again.
        _aside(file, text).replace(file)


def _chosen(directory: Path, ports: list[int]) -> list[int]:
    """Return the ports that are kept: these, if nobody else was first."""
    file = directory / "ports.json"
    aside = _aside(file, json.dumps(ports))
    try:
        # Not by `durable`: a cluster for tests can be made again.
        os.link(aside, file)
    except FileExistsError:
        return kept_ports(directory) or ports
    finally:
        aside.unlink()
    return ports


def _aside(file: Path, text: str) -> Path:
    """Write a text to a file of its own beside another one."""
    number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    with os.fdopen(number, "w") as aside:
        aside.write(text)
    path = Path(name)
    path.chmod(0o644)
    return path


def _are_ports(kept: Any) -> bool:
    return (
        isinstance(kept, list)
        and len(kept) > 0
        and len(kept) % 2 == 0
        and all(type(port) is int and 0 < port <= _PORT_MAX for port in kept)
    )


def _ports_of_settings(directory: Path) -> list[int]:
    """Return the ports as the settings of the nodes have them."""
    ports: list[int] = []
    node = 1
    while (directory / f"node-{node}").exists():
        file = directory / f"node-{node}" / "node.toml"
        try:
            said = tomllib.loads(file.read_text())["node"]
            ports += [int(said[name].rpartition(":")[2]) for name in ("listen", "http")]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(
                f"{directory / 'ports.json'} is damaged or missing, and {file} does "
                "not say where the node listens: restore one of them"
            ) from error
        node += 1
    return ports
