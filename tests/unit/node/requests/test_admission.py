"""What a command may hold, and who may send it, is asked before it is logged."""

from typing import Any, get_args

import pytest

from braidlog.errors import (
    InvalidArgumentError,
    TableCursorError,
    TooLargeError,
    UnauthorizedError,
)
from braidlog.node.requests.admission import admit, refuse_pin
from braidlog.store.catalog import LogOptions
from braidlog.wire import commands
from braidlog.wire.commands import Command, encode
from braidlog.wire.connection import ANSWERS, ONE_WAY
from braidlog.wire.messages import StreamStatus
from braidlog.wire.roles import NEEDED, Role

LOG = b"l" * 16
NO_OPTIONS = (
    b"x",
    b"null",
    b"[]",
    b'"text"',
    b"1",
    b"\xff\xfe",
    b"[" * 4096,
    b'{"retention_ms": "1"}',
    b'{"retention_ms": 1e400}',
    b'{"retention_bytes": true}',
    b'{"retention_ms": -1}',
    b'{"retention_ms": ' + b"9" * 4000 + b"}",
    b'{"compression": null}',
    b'{"compression": []}',
    b'{"compression": {}}',
)


def test_every_command_names_its_role() -> None:
    """A default would let in what nobody thought of."""
    for command in get_args(Command):
        assert "ROLE" in vars(command), command.__name__
    assert "ROLE" not in vars(commands.RegisterNode.__base__)


def test_every_message_names_its_role() -> None:
    assert set(NEEDED) == set(ANSWERS) | ONE_WAY


@pytest.mark.parametrize(
    "command",
    [
        commands.RegisterNode(2, "host:2", 1),
        commands.OfferReplicas(2, 1, 0, 1),
        commands.Retain(1, b"", 8),
    ],
)
def test_what_nodes_say_of_themselves_needs_the_role_of_a_node(
    command: Command,
) -> None:
    """With them an admin could take the place of a node."""
    assert admit(encode(command), Role.PEER) == command
    with pytest.raises(UnauthorizedError, match="needs a token of role peer"):
        admit(encode(command), Role.ADMIN)


def test_what_the_leader_decides_comes_from_nobody() -> None:
    status = StreamStatus.RUNNING
    made: list[Command] = [
        commands.Cut(()),
        commands.Reconfigure(1, 1, (1,), (), status, (1,), (), True),
        commands.ChangeFaults(1, 0),
        commands.AdmitNode(1),
    ]
    for command in made:
        with pytest.raises(UnauthorizedError, match="leader"):
            admit(encode(command), Role.PEER)


def test_only_a_host_moves_its_pin() -> None:
    move = commands.CursorChange.MOVE
    for change in commands.CursorChange:
        with pytest.raises(TableCursorError):
            refuse_pin(commands.SetCursor(LOG, "table:ab:1", 5, change=change))
    refuse_pin(commands.SetCursor(LOG, "tables", 5, change=move))


@pytest.mark.parametrize("options", NO_OPTIONS)
def test_options_that_nobody_could_read_are_refused(options: bytes) -> None:
    made: list[Command] = [
        commands.CreateLog(LOG, "log", 1, 1, 1, options),
        commands.AlterLog(LOG, options=options),
    ]
    for command in made:
        with pytest.raises(InvalidArgumentError):
            admit(encode(command), Role.ADMIN)
    assert LogOptions.decode_or_default(options) == LogOptions()


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (commands.SetCursor(LOG, "c", 1, True, 1 << 63), InvalidArgumentError),
        (commands.SetCursor(LOG, "c", 1, True, -1), InvalidArgumentError),
        (commands.SetCursor(LOG, "é" * 128, 1), TooLargeError),
        (commands.DeleteCursor(b"l" * 900_000, "c"), InvalidArgumentError),
        (commands.GetCursors(b""), InvalidArgumentError),
        (commands.AlterLog(LOG, name="x" * 256), TooLargeError),
        (commands.RegisterNode(2, "no address", 1), InvalidArgumentError),
        (commands.RegisterNode(2, "host:2", 1, b"i"), InvalidArgumentError),
    ],
)
def test_values_that_nobody_could_use_are_refused(
    command: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        admit(encode(command), Role.PEER)


def test_what_follows_the_fields_of_a_command_has_a_bound() -> None:
    """A newer version may have more fields, and the least role sends commands."""
    asked = encode(commands.GetCursors(LOG))
    assert admit(b"\x93" + asked[1:] + b"\xc0", Role.READ) == commands.GetCursors(LOG)
    more = b"\xc6" + (100_000).to_bytes(4, "big") + bytes(100_000)
    with pytest.raises(TooLargeError):
        admit(b"\x93" + asked[1:] + more, Role.READ)


def test_what_clients_send_is_let_in() -> None:
    options = LogOptions("zstd", 1000, 0, {"archive": "/a", "newer": [1]}).encode()
    made: list[Command] = [
        commands.CreateLog(LOG, "log", 1, 1, 1, options),
        commands.CreateLog(LOG, "log", 1, 1, 1),
        commands.AlterLog(LOG, options=options),
        commands.AlterLog(LOG, replication=2),
        commands.SetCursor(LOG, "c", 1, True, 0),
        commands.RegisterNode(2, "[::1]:7400", 1, b"i" * 16),
    ]
    for command in made:
        assert admit(encode(command), Role.PEER) == command
