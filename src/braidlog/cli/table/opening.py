"""Opening the tables that commands name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from braidlog.cli.command.failures import NOT_FOUND, Problem
from braidlog.cli.command.session import Session
from braidlog.errors import NotFoundError

if TYPE_CHECKING:
    from braidlog.cli.command.session import Logs


@contextmanager
def opened(session: Session, name: str, *, write: bool = False) -> Iterator[Any]:
    """Open a table of the data directory, with ``write`` as its writer, or a cluster.

    Raises:
        Problem: There is no such table.
    """
    with session.changing() if write else session.logs() as store:
        yield table_of(store, name)


def table_of(store: Logs, name: str) -> Any:
    """Return a table of a directory or a cluster; both have the same calls.

    Raises:
        Problem: There is no such table.
    """
    try:
        return store.table(name)
    except NotFoundError as error:
        hint = "`braidlog table list` shows the tables"
        raise Problem(error.message, hint, NOT_FOUND) from None
