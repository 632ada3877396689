"""What other packages of Braidlog ask of a log of a cluster, and programs do not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from braidlog.client.log import AsyncClusterLog
from braidlog.store.cursor import StoredCursor

if TYPE_CHECKING:
    from braidlog._native import Record


async def stored_cursors(log: AsyncClusterLog) -> tuple[StoredCursor, ...]:
    """Return all that the cluster knows of the cursors of a log."""
    return await log._cursor_store.rows()


def subscribe_chunks(
    log: AsyncClusterLog, begin: int
) -> AsyncGenerator[list[Record], None]:
    """Subscribe from a position on, by the chunks in which records come."""
    return log._subscribe_chunks(begin)
