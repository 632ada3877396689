"""Opening the tables that commands name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from braidlog.cli.command.failures import NOT_FOUND, Problem
from braidlog.cli.command.session import Session
from braidlog.errors import NotFoundError

if TYPE_CHECKING:
    import braidlog
    from braidlog.store.tables.table import Table


@contextmanager
def opened(session: Session, name: str, *, write: bool = False) -> Iterator[Table]:
    """Open a table, and the data directory for reading; with ``write`` as its writer.

    Raises:
        Problem: There is no such table.
    """
    with session.writer() if write else session.reader() as store:
        yield table_of(store, name)


def table_of(store: braidlog.Store, name: str) -> Table:
    """Return a table.

    Raises:
        Problem: There is no such table.
    """
    try:
        return store.table(name)
    except NotFoundError as error:
        hint = "`braidlog table list` shows the tables"
        raise Problem(error.message, hint, NOT_FOUND) from None
