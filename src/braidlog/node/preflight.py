"""What a start of a node would refuse, found without starting it: `serve --check`.

*Theory of operation.* Everything is only looked at: nothing is made, locked or written,
and no port is listened on. So it may run beside the node whose settings were changed;
its directory is in use then, and its ports are taken by itself, so they are not tried.
The errors are those of the start.
"""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Final

from braidlog.errors import CorruptionError, UnavailableError
from braidlog.faultlog.scan import scan
from braidlog.node.config import NodeConfig
from braidlog.node.peers.identity import NAME
from braidlog.node.rescue.fault_log import check_owner
from braidlog.node.rescue.ring import FILE_NAME, read_ring
from braidlog.node.server import (
    damage_explained,
    own_certificate,
    refuse_embedded,
)
from braidlog.serving.credentials import read_credentials
from braidlog.serving.settings import host_and_port
from braidlog.store import inspect

# Of a directory that was begun; other files may lie beside them.
_SIGNS: Final = ("IDENTITY", "CURRENT", "wal")
_NEW_BYTES: Final = 4 << 20
"""What a new directory takes: the first MiB of a segment, the ballast, the fault log
and small files, and some room for what a file system adds."""


def preflight(config: NodeConfig) -> list[str]:
    """Return what an operator should know, though the node would start.

    Raises:
        LogError: a start would be refused.
        ImportError: a package that the settings need is missing.
    """
    tls = read_credentials(config.security)
    import_module("uvloop")
    if config.node.http:
        import_module("braidlog.serving.http")
    notes = _doubts(config)
    if refused := own_certificate(config, tls):
        notes.append(refused)
    if holder := _check_directory(config):
        notes.append(
            f"{holder} has {config.node.data} open. If it is this node, the new "
            "settings apply from its next start; its addresses were not tried"
        )
    else:
        _check_addresses(config)
    return notes + _check_room(config)


def _doubts(config: NodeConfig) -> list[str]:
    """Return what a start takes, and what keeps the node out of its cluster."""
    notes = []
    security, voters = config.security, config.cluster.voters
    if security.tokens and not security.peer_token and len(voters) > 1:
        notes.append(
            "[security] peer_token is missing: other nodes with [security] "
            "tokens will refuse this one"
        )
    said = voters.get(config.node.id, config.advertise)
    if said != config.advertise:
        notes.append(
            f"[cluster] voters.{config.node.id} = {said!r} differs from "
            f"{config.advertise!r}, the address that this node tells others: "
            "set [node] advertise"
        )
    return notes


def _check_directory(config: NodeConfig) -> str:
    """Return which process has the directory open, if one has."""
    data = Path(config.node.data)
    if not data.exists():
        _check_parent(data)
        return ""
    _check_usable(data)
    if not any((data / name).exists() for name in _SIGNS):
        return ""
    state = inspect.state(data)
    if state.recovery == "in use":
        # It may be another node's: this one could not start when that one has stopped.
        with suppress(CorruptionError):
            _check_faults(config, data)
        return state.holder or "a process"
    names = [log.name for log in state.logs]
    if NAME not in names:
        refuse_embedded(config, names)
    with damage_explained(config):
        if state.recovery == "corruption":
            raise CorruptionError(
                state.fault or "the log cannot be read", path=str(data)
            )
        if NAME in names:
            _check_faults(config, data)
    return ""


def _check_faults(config: NodeConfig, data: Path) -> None:
    path = str(data / FILE_NAME)
    newest = scan(read_ring(data), path=path).newest
    if newest is not None:
        check_owner(newest, config.cluster.name, config.node.id, path)


def _check_parent(data: Path) -> None:
    there = next(each for each in data.absolute().parents if each.exists())
    _check_usable(there)


def _check_usable(path: Path) -> None:
    why = ""
    if not path.is_dir():
        why = "it is not a directory"
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        why = "this user may not read and write it"
    if why:
        raise UnavailableError(f"[node] data = {str(path)!r}: {why}", path=str(path))


def _check_room(config: NodeConfig) -> list[str]:
    """Return that there is little room; without room for a directory nothing starts."""
    data = Path(config.node.data).absolute()
    there = next(each for each in (data, *data.parents) if each.exists())
    free = shutil.disk_usage(there).free
    new = not any((data / name).exists() for name in _SIGNS)
    needed = _NEW_BYTES + config.limits.wal_ready_bytes
    if new and free < needed:
        msg = (
            f"[node] data = {str(data)!r}: its file system has {free} bytes free, and "
            f"a new directory takes up to {needed}"
        )
        raise UnavailableError(msg, path=str(data))
    if free >= config.limits.segment_bytes:
        return []
    note = (
        f"the file system of {data} has {free} bytes free, less than one segment "
        f"({config.limits.segment_bytes}): the node starts and serves reads, but "
        "appends will be refused when that is used up"
    )
    return [note]


def _check_addresses(config: NodeConfig) -> None:
    with ExitStack() as stack:
        for setting in ("listen", "http"):
            if address := getattr(config.node, setting):
                try:
                    _bind(stack, *host_and_port(address))
                except OSError as error:
                    why = error.strerror or error
                    msg = f"cannot listen on {address} ([node] {setting}): {why}"
                    raise UnavailableError(msg) from error


def _bind(stack: ExitStack, host: str, port: int) -> None:
    found = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    for family, kind, protocol, _, address in dict.fromkeys(found):
        bound = stack.enter_context(socket.socket(family, kind, protocol))
        # As the node does: what was closed a moment ago is free.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
