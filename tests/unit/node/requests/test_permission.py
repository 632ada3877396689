"""Names of logs on a node that is no member of the repository, and knows little."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.errors import NotReadyError, UnauthorizedError
from braidlog.node.requests.permission import Permission, seen
from braidlog.wire import messages
from braidlog.wire.messages import Metadata
from braidlog.wire.rights import Grant, Rights
from braidlog.wire.roles import Role
from unit.wire.examples import INFO, LOG, TABLE

HEARD = Metadata(9, 1, "c", (), (INFO,), (TABLE,))
RIGHTS = Rights(Role.NONE, "t", grants=(Grant("orders", Role.READ),))


def permission(metadata: Metadata | None, here: str = "") -> Permission:
    route: Any = SimpleNamespace(
        member=None, node=4, directory=SimpleNamespace(metadata=metadata)
    )
    return Permission(route, lambda stream: here)


def test_names_come_from_what_was_heard() -> None:
    known = permission(HEARD)
    known.check(messages.Read(3, 1, True, 1, 0), RIGHTS)
    known.check(messages.GetLogEnd(LOG), RIGHTS)
    known.check(messages.GetTable(TABLE.table), RIGHTS)
    with pytest.raises(UnauthorizedError, match="FlushTable on the log 'orders'"):
        known.check(messages.FlushTable(TABLE.table), RIGHTS)
    with pytest.raises(UnauthorizedError, match="Append on the log 'orders'"):
        known.stream(3, RIGHTS, Role.APPEND, "Append")


def test_what_is_not_known_is_not_allowed() -> None:
    for unknown in (permission(None), permission(HEARD)):
        for message in (
            messages.Read(99, 1, True, 1, 0),
            messages.GetLogEnd(bytes(16)),
            messages.GetTable(bytes(16)),
        ):
            with pytest.raises(NotReadyError, match="does not know"):
                unknown.check(message, RIGHTS)
    # A replica is here before the node hears of its log.
    permission(None, "orders").stream(99, RIGHTS, Role.READ, "Read")
    with pytest.raises(UnauthorizedError, match="on the log 'other'"):
        permission(None, "other").stream(99, RIGHTS, Role.READ, "Read")


def test_only_what_may_be_read_is_seen() -> None:
    assert seen(HEARD, RIGHTS) == HEARD
    none = seen(HEARD, Rights(Role.NONE, grants=(Grant("order", Role.ADMIN),)))
    assert none.logs == ()
    assert none.tables == ()
    assert seen(HEARD, Rights(Role.READ, grants=RIGHTS.grants)) is HEARD
