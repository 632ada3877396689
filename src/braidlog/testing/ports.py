"""Where the nodes of a local cluster listen: chosen once, kept in its directory.

The nodes know one another by these ports, so a cluster that came back with others would
not find itself. They are in `ports.json`, and in the settings of each node as well.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from braidlog.errors import InvalidArgumentError

__all__ = ["keep_ports", "kept_ports", "write_whole"]

_PORT_MAX = (1 << 16) - 1


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


def keep_ports(directory: Path, nodes: int) -> list[int]:
    """Return the ports of the cluster in a directory; choose them if there is none.

    Of several that do it at a time all get the same.

    Raises:
        InvalidArgumentError: the cluster has another number of nodes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ports = kept_ports(directory) or _chosen(directory, _free_ports(2 * nodes))
    if len(ports) != 2 * nodes:
        there = len(ports) // 2
        nouns = "node" if there == 1 else "nodes"
        msg = f"{directory} has a cluster of {there} {nouns}, not {nodes}"
        raise InvalidArgumentError(msg)
    write_whole(directory / "ports.json", json.dumps(ports))
    return ports


def write_whole(file: Path, text: str) -> None:
    """Let a file have a text; who reads it meanwhile sees all of it or what was."""
    if not file.exists() or file.read_text(errors="replace") != text:
        _aside(file, text).replace(file)


def _chosen(directory: Path, ports: list[int]) -> list[int]:
    """Return the ports that are kept: these, if nobody else was first."""
    file = directory / "ports.json"
    aside = _aside(file, json.dumps(ports))
    try:
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
            msg = (
                f"{directory / 'ports.json'} is damaged or missing, and {file} does"
                " not say where the node listens: put one of them back"
            )
            raise InvalidArgumentError(msg) from error
        node += 1
    return ports


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; all are held until all are known."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
