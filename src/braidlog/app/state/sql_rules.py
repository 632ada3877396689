"""What SQL may do inside a procedure; what would differ at replay is refused.

Two nets. The authorizer of SQLite sees what a statement does when it is prepared; the
text is searched for the few words that the authorizer does not see. Refusals do not
depend on data, so they are the same on every host.
"""

from __future__ import annotations

import re
from typing import Final

import apsw

from braidlog.app.errors import DeterminismError
from braidlog.app.state.changes import PREFIX
from braidlog.errors import InvalidArgumentError

# Functions whose value is no function of arguments and state, or depends on what this
# connection did before the command.
_FUNCTIONS: Final = frozenset(
    {
        *("random", "randomblob", "changes", "total_changes", "last_insert_rowid"),
        *("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff"),
        *("current_date", "current_time", "current_timestamp"),
        *("load_extension", "sqlite_offset"),
    }
)
_WRITES: Final = frozenset({apsw.SQLITE_INSERT, apsw.SQLITE_UPDATE, apsw.SQLITE_DELETE})
_ALLOWED: Final = frozenset(
    {*_WRITES, apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE}
)
# A conflict that ends the transaction would take other commands with it, and one that
# keeps the rows before it would leave changes that the hook's list cannot tell apart.
_CONFLICTS: Final = re.compile(
    r"\b(OR|CONFLICT)\s+(ROLLBACK|FAIL)\b|\bRAISE\s*\(\s*(ROLLBACK|FAIL)\b", re.I
)
_DEFERRED: Final = re.compile(r"\bINITIALLY\s+DEFERRED\b", re.I)


def authorize(
    action: int,
    one: str | None,
    two: str | None,
    database: str | None,
    trigger: str | None,
) -> int:
    """Say whether a statement of a procedure may do one thing."""
    if action == apsw.SQLITE_FUNCTION:
        denied = two is not None and two.lower() in _FUNCTIONS
        return apsw.SQLITE_DENY if denied else apsw.SQLITE_OK
    if action not in _ALLOWED:
        return apsw.SQLITE_DENY
    name = (one or "").lower()
    inner = name.startswith(PREFIX) or (
        action in _WRITES and name.startswith("sqlite_")
    )
    return apsw.SQLITE_DENY if inner else apsw.SQLITE_OK


def check_statement(sql: str) -> None:
    """Refuse what the authorizer does not see.

    Raises:
        DeterminismError: the text has a conflict clause that reaches further than its
            own statement.
    """
    if found := _CONFLICTS.search(sql):
        msg = f"{found.group(0)!r} affects more than its statement: use OR ABORT"
        raise DeterminismError(msg)


def check_schema(step: str) -> None:
    """Refuse a schema whose constraints reach beyond a command.

    Raises:
        InvalidArgumentError: it has such a constraint.
    """
    for pattern in (_CONFLICTS, _DEFERRED):
        if found := pattern.search(step):
            raise InvalidArgumentError(
                f"{found.group(0)!r} in the schema affects more than one command, "
                "because many commands share a transaction"
            )
