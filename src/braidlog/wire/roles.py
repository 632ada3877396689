"""Roles: what a connection may do, message by message.

A role includes those before it: `none`, `read`, `append`, `admin`, `peer`. What a
command of the metadata repository needs is decided where commands are known; `Execute`
needs the least that any of them does. So does `Call`: what a procedure needs, its host
decides.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from braidlog.errors import InvalidArgumentError, UnauthorizedError
from braidlog.wire import messages
from braidlog.wire.messages import Message

__all__ = ["NEEDED", "OF_LOGS", "Role", "check_role"]


class Role(IntEnum):
    """What a connection may do; each includes those before it."""

    NONE = 0
    """Nothing, but for what grants on logs allow."""
    READ = 1
    APPEND = 2
    ADMIN = 3
    PEER = 4
    """A node of the cluster."""

    @property
    def word(self) -> str:
        """Return the role as files and messages name it."""
        return self.name.lower()

    @classmethod
    def named(cls, word: str) -> Role:
        """Return the role of that name.

        Raises:
            InvalidArgumentError: there is none.
        """
        for role in cls:
            if role.word == word:
                return role
        names = ", ".join(role.word for role in cls)
        raise InvalidArgumentError(
            f"role {word[:64]!r} does not exist (there are: {names})"
        )


NEEDED: Final[dict[type[Message], Role]] = {
    messages.Read: Role.READ,
    messages.GetMetadata: Role.READ,
    messages.GetLogEnd: Role.READ,
    messages.Execute: Role.READ,
    messages.Call: Role.READ,
    messages.GetAppStatus: Role.READ,
    messages.Reload: Role.ADMIN,
    messages.Promote: Role.ADMIN,
    messages.Resize: Role.ADMIN,
    messages.FetchSnapshot: Role.ADMIN,
    messages.TakeSnapshot: Role.ADMIN,
    messages.GetRows: Role.READ,
    messages.ScanRows: Role.READ,
    messages.GetTable: Role.READ,
    messages.DivideTable: Role.READ,
    messages.PinRuns: Role.ADMIN,
    messages.FetchRun: Role.ADMIN,
    messages.UnpinRuns: Role.ADMIN,
    messages.FlushTable: Role.ADMIN,
    messages.VerifyTable: Role.ADMIN,
    messages.ReleaseRows: Role.READ,
    messages.Append: Role.APPEND,
    messages.AppendTo: Role.APPEND,
    messages.Acquire: Role.APPEND,
    messages.Release: Role.APPEND,
    messages.GetShardEnd: Role.READ,
    messages.GetTimestamps: Role.APPEND,
    messages.Consensus: Role.PEER,
    messages.Replicate: Role.PEER,
    messages.Fetch: Role.PEER,
    messages.Entries: Role.PEER,
    messages.Report: Role.PEER,
    messages.Commit: Role.PEER,
    messages.Configure: Role.PEER,
    messages.Faults: Role.PEER,
    messages.Recorded: Role.PEER,
}
"""The least role for each message that asks for something."""


OF_LOGS: Final[frozenset[type[Message]]] = frozenset(
    {
        messages.Append,
        messages.AppendTo,
        messages.Acquire,
        messages.Release,
        messages.GetShardEnd,
        messages.GetTimestamps,
        messages.Read,
        messages.GetMetadata,
        messages.GetLogEnd,
        messages.Execute,
        messages.GetRows,
        messages.ScanRows,
        messages.GetTable,
        messages.DivideTable,
        messages.ReleaseRows,
        messages.FlushTable,
        messages.VerifyTable,
    }
)
"""Those that a node judges by the log, for tokens that have grants on some."""


def check_role(role: Role, message: type[Message]) -> None:
    """Refuse a message that the role does not allow.

    Raises:
        UnauthorizedError: it does not; the message names the role that does.
    """
    needed = NEEDED[message]
    if role < needed:
        name = message.__name__
        reason = (
            f"{name} needs a token of role {needed.word}; this token has role "
            f"{role.word}"
        )
        raise UnauthorizedError(reason)
