"""``braidlog token``: who may do what in a cluster."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from pathlib import Path

import click

from braidlog import durable
from braidlog.cli.command.commands import PlainCommand, group_of
from braidlog.cli.command.failures import USAGE, Problem
from braidlog.cli.command.parameters import LocalPath
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line, message
from braidlog.errors import AlreadyExistsError

_ROLES = ["read", "append", "admin", "peer"]
_ONLY_THE_OWNER = 0o600


@click.group(cls=group_of(PlainCommand))
def token() -> None:
    """Create tokens for a cluster."""


@token.command()
@click.option(
    "--name", required=True, help="Name of the token's owner: letters, digits, ._-"
)
@click.option(
    "--role",
    type=click.Choice(_ROLES),
    help="Permissions in the whole cluster; each role includes those before it. peer is"
    " for nodes. May be left out with --log.",
)
@click.option(
    "--log",
    "logs",
    metavar="NAME=ROLE",
    multiple=True,
    help="Permissions on a log, or on all that begin alike: 'orders.*=append'; may be"
    " repeated.",
)
@click.option(
    "--quota",
    "quotas",
    metavar="NAME=NUMBER",
    multiple=True,
    help="Most that all connections of the token use of each node: bytes_per_s,"
    " requests_per_s or connections; may be repeated.",
)
@click.option(
    "--file",
    "path",
    type=LocalPath(dir_okay=False),
    default=Path("tokens.toml"),
    show_default=True,
    help="Token file of the nodes; created if missing.",
)
def create(
    session: Session,
    /,
    name: str,
    *,
    role: str | None,
    logs: tuple[str, ...],
    quotas: tuple[str, ...],
    path: Path,
) -> None:
    """Create a token and print it once.

    The file gets its name, roles and hash, not the token itself. Nodes read the file at
    start, and on `braidlog cluster reload`.
    """
    from braidlog.wire.quotas import Quotas
    from braidlog.wire.rights import Grant
    from braidlog.wire.roles import Role
    from braidlog.wire.tokens import ENTROPY_BYTES, make_token, token_entry

    entropy = secrets.token_bytes(ENTROPY_BYTES)
    if role is None and not logs:
        raise click.UsageError("name a --role, or a --log, or both")
    pairs = [each.rpartition("=")[::2] for each in logs]
    grants = [Grant(pattern, Role.named(word)) for pattern, word in pairs]
    most = Quotas.parse(dict(map(_quota, quotas)))
    text, made = make_token(name, Role.named(role or "none"), entropy, grants, most)
    try:
        _append(path, token_entry(made))
    except AlreadyExistsError:
        text = f"{path} has a token named {name!r} already"
        hint = "choose another name, or remove its entry from the file first"
        raise Problem(text, hint) from None
    if not session.as_json:
        may = ", ".join([*([role] if role else []), *logs])
        message(f"{name} may {may}; this is shown only once, {path} has its hash:")
    told = {"name": name, "role": role or "none", "logs": list(logs)}
    line(session, text, **told, quotas=most.given, token=text, file=str(path))


def _quota(text: str) -> tuple[str, int | str]:
    """Return a name and a number; what is none is refused with those that are."""
    name, _, number = text.partition("=")
    return name, int(number) if number.isdecimal() and len(number) < 20 else number


def _append(path: Path, entry: str) -> None:
    """Add an entry to a token file, which is for its owner alone afterwards."""
    from braidlog.wire.tokens import parse_tokens

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, _ONLY_THE_OWNER)
    with os.fdopen(descriptor, "r+b") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Problem(f"{path} is not a file", "", USAGE)
        # Two who make tokens at a time must see each other's names.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        before = file.read().decode("utf-8", "replace")
        between = "\n" if before.strip() else ""
        if before and not before.endswith("\n"):
            between = "\n\n"
        parse_tokens(before + between + entry)
        os.fchmod(descriptor, _ONLY_THE_OWNER)
        file.write((between + entry).encode())
        durable.flush(file)
