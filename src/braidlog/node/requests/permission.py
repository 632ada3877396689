"""What a token with grants on logs may ask for: the logs behind a request, by name.

*Theory of operation.* Requests name logs, streams and tables by number or identity.
This node looks their names up in what it knows of the repository: as a member of it in
its state, else in the metadata it heard last. Who has the role in the whole cluster is
never looked up.

*Invariants.* What cannot be looked up is not allowed: the client asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from braidlog.errors import LogError, NotFoundError, NotReadyError
from braidlog.node.repository.route import RepositoryRoute
from braidlog.wire import commands, messages
from braidlog.wire.commands import Command
from braidlog.wire.messages import Message, Metadata
from braidlog.wire.rights import Rights
from braidlog.wire.roles import NEEDED, Role, check_role
from braidlog.wire.tables import CreateTable

__all__ = ["Permission", "seen"]

_BY_NEED: Final = {"read": Role.READ, "append": Role.APPEND, "admin": Role.ADMIN}


class Permission:
    """Looks names up, and refuses what rights do not allow on them."""

    def __init__(
        self, route: RepositoryRoute, replicated: Callable[[int], str]
    ) -> None:
        """Look into a repository; `replicated` knows the logs of streams here."""
        self._route = route
        self._replicated = replicated
        self._heard: Metadata | None = None
        self._logs: dict[bytes, str] = {}
        self._streams: dict[int, bytes] = {}
        self._tables: dict[bytes, bytes] = {}

    def check(self, message: Message, rights: Rights) -> None:
        """Refuse a request, but for commands, that rights with grants do not allow.

        Raises:
            UnauthorizedError: they do not.
            NotReadyError: this node does not know what it is about.
            NotFoundError: there is no such log or table.
        """
        kind = type(message)
        needed = NEEDED[kind]
        if isinstance(message, messages.GetShardEnd) and message.writer:
            needed = Role.APPEND  # It keeps others from taking over.
        if rights.role >= needed:
            return
        if isinstance(message, _OF_STREAMS):
            self.stream(message.stream, rights, needed, kind.__name__)
        elif isinstance(message, messages.GetLogEnd):
            rights.require(self._log(message.log), needed, kind.__name__)
        elif isinstance(message, messages.GetMetadata | messages.Execute):
            return  # It is filtered, or its command is judged.
        elif kind in _OF_TABLES:
            table: bytes = getattr(message, "table", b"")
            rights.require(self._log_of_table(table), needed, kind.__name__)
        else:
            check_role(rights.role, kind)

    def stream(self, stream: int, rights: Rights, needed: Role, what: str) -> None:
        """Refuse what rights do not allow on the log of a stream; raises as `check`."""
        if rights.role < needed:
            rights.require(self._log_of_stream(stream), needed, what)

    def command(self, command: Command, rights: Rights) -> Role:
        """Return the role in which a command is carried out; raises as `check`."""
        needed = _BY_NEED.get(command.ROLE)
        if needed is None or rights.role >= needed:
            return rights.role
        concerned = list(self._concerned(command))
        for log in concerned:
            rights.require(log, needed, type(command).__name__)
        return needed if concerned else rights.role

    def _concerned(self, command: Command) -> Iterator[str]:
        """Yield the names of the logs that a command is about."""
        match command:
            case commands.CreateLog(name=name):
                yield name
            case commands.AlterLog(log=log, name=name):
                yield self._log(log)
                if name is not None:
                    yield name
            case (
                commands.DeleteLog(log=log)
                | commands.SetStreams(log=log)
                | commands.Trim(log=log)
                | commands.SetCursor(log=log)
                | commands.DeleteCursor(log=log)
                | commands.GetCursors(log=log)
            ):
                yield self._log(log)
            case (
                commands.Seal(stream=stream)
                | commands.Unseal(stream=stream)
                | commands.AddLearner(stream=stream)
                | commands.DropLearner(stream=stream)
                | commands.MoveReplica(stream=stream)
            ):
                yield self._log_of_stream(stream)
            case commands.ChangeTables(changes=changes):
                for change in changes:
                    if isinstance(change, CreateTable):
                        yield self._log(change.log)
                    else:
                        yield self._log_of_table(change.table)

    # --- names

    def _log(self, log: bytes) -> str:
        if (member := self._route.member) is not None:
            state = member.group.repository.state.logs.get(log)
            name = state.name if state is not None else None
        else:
            self._look()
            name = self._logs.get(log)
        if name is None:
            raise self._unknown(f"the log with identity {log.hex()}")
        return name

    def _log_of_stream(self, stream: int) -> str:
        if (member := self._route.member) is not None:
            known = member.group.repository.state
            state = known.streams.get(stream) or known.shards.get(stream)
            log = state.log if state is not None else None
        else:
            self._look()
            log = self._streams.get(stream)
        if log is not None:
            return self._log(log)
        # A replica may be told of its stream before this node hears of it.
        if name := self._replicated(stream):
            return name
        raise self._unknown(f"stream {stream}")

    def _log_of_table(self, table: bytes) -> str:
        if (member := self._route.member) is not None:
            info = member.group.repository.state.tables.get(table)
            log = info.log if info is not None else None
        else:
            self._look()
            log = self._tables.get(table)
        if log is None:
            raise self._unknown(f"the table with identity {table.hex()}")
        return self._log(log)

    def _look(self) -> None:
        """Take what this node, which is no member, has heard last."""
        heard = self._route.directory.metadata
        if heard is self._heard or heard is None:
            return
        self._heard = heard
        self._logs = {log.log: log.name for log in heard.logs}
        self._streams = {
            each.stream: log.log for log in heard.logs for each in log.streams
        }
        self._tables = {table.table: table.log for table in heard.tables}

    def _unknown(self, what: str) -> LogError:
        """Return the error for what has no name here; only the leader knows all."""
        member = self._route.member
        if member is not None and member.leader == self._route.node:
            return NotFoundError(f"{what} does not exist")
        return NotReadyError(f"this node does not know {what} yet")


_OF_STREAMS: Final = (
    messages.Read,
    messages.AppendTo,
    messages.Acquire,
    messages.Release,
    messages.GetShardEnd,
    messages.GetTimestamps,
)
_OF_TABLES: Final = frozenset(
    {
        messages.GetRows,
        messages.ScanRows,
        messages.GetTable,
        messages.DivideTable,
        messages.ReleaseRows,
        messages.FlushTable,
        messages.VerifyTable,
    }
)
"""Those about files of a table name a pin, not the table: grants do not allow them."""


def seen(metadata: Metadata, rights: Rights) -> Metadata:
    """Return what rights allow to see: logs that may be read, and their tables."""
    if rights.role >= Role.READ:
        return metadata
    logs = tuple(log for log in metadata.logs if rights.on(log.name) >= Role.READ)
    there = {log.log for log in logs}
    tables = tuple(table for table in metadata.tables if table.log in there)
    return msgspec.structs.replace(metadata, logs=logs, tables=tables)
