"""What a command that came over a connection has to be before anything is done with it.

*Theory of operation.* A command is logged once and applied on every member of the
repository, for ever; what it stores is read by others, at other times. So its payload
is decoded here with the decoder that will read it there. The state machine does not
check these: what earlier versions logged has to come to the same result on all nodes.

*Invariants.* Nothing is changed by what is refused.
"""

from __future__ import annotations

from typing import Final

from braidlog.errors import (
    InvalidArgumentError,
    TableCursorError,
    TooLargeError,
    UnauthorizedError,
)
from braidlog.names import checked_name
from braidlog.serving.settings import host_and_port
from braidlog.store.catalog import LogOptions
from braidlog.store.retention import LEASE_MAX_S
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.roles import Role
from braidlog.wire.tables import PIN_PREFIX

_LOG_ID_BYTES: Final = 16
_IDENTITY_BYTES: Final = 16
_BYTES_MAX: Final = 64 << 10
"""What a command has at most, unless it has something of each of many streams."""
_LARGE: Final = (commands.CreateLog, commands.OfferReplicas)
_ROLES: Final = {role.word: role for role in Role}


def admit(command: bytes, role: Role) -> Command:
    """Decode a command that somebody with this role sent.

    Raises:
        UnauthorizedError: the role does not allow it.
        InvalidArgumentError: it is no command, or a value in it could not be read.
        TooLargeError: it, or a name in it, is over its limit.
    """
    decoded = commands.decode(command)
    _check_role(decoded, role)
    # Fields of newer versions are passed over, and may be of any size.
    if len(command) > _BYTES_MAX and not isinstance(decoded, _LARGE):
        msg = (
            f"the command {type(decoded).__name__} has {len(command)} bytes, at "
            f"most {_BYTES_MAX} are allowed"
        )
        raise TooLargeError(msg, size=len(command), limit=_BYTES_MAX)
    _check_values(decoded)
    return decoded


def refuse_pin(command: Command) -> None:
    """Refuse what a host of a table alone may do: to move its pin of the log.

    Raises:
        TableCursorError: it is that.
    """
    if isinstance(command, commands.SetCursor) and command.name.startswith(PIN_PREFIX):
        msg = f"cursor {command.name!r} belongs to a table, which moves it by itself"
        raise TableCursorError(msg)


def _check_role(command: Command, role: Role) -> None:
    needed = _ROLES.get(command.ROLE)
    name = type(command).__name__
    if needed is None:
        msg = f"only the leader of the metadata repository itself may send {name}"
        raise UnauthorizedError(msg)
    if role < needed:
        raise UnauthorizedError(
            f"{name} needs a token of role {needed.word}; this token has role "
            f"{role.word}"
        )


def _check_values(command: Command) -> None:
    log = getattr(command, "log", None)
    if isinstance(log, bytes) and len(log) != _LOG_ID_BYTES:
        msg = f"the identity of a log has {_LOG_ID_BYTES} bytes, got {len(log)}"
        raise InvalidArgumentError(msg)
    if isinstance(name := getattr(command, "name", None), str):
        of_cursor = isinstance(command, commands.SetCursor | commands.DeleteCursor)
        checked_name(name, "cursor" if of_cursor else "log")
    match command:
        case commands.CreateLog(options=options):
            LogOptions.decode(options)
        case commands.AlterLog(options=bytes(options)):
            LogOptions.decode(options)
        case commands.SetCursor(lease=lease):
            if not 0 <= lease <= LEASE_MAX_S * 1_000_000:
                raise InvalidArgumentError(
                    f"a lease must be from 0 to {LEASE_MAX_S} seconds, got {lease} "
                    "microseconds"
                )
        case commands.RegisterNode(address=address, identity=identity):
            host_and_port(address)
            if len(identity) not in (0, _IDENTITY_BYTES):
                raise InvalidArgumentError(
                    f"the identity of a directory has {_IDENTITY_BYTES} bytes, got "
                    f"{len(identity)}"
                )
