"""A durable, totally ordered log: embedded like SQLite, read by Arrow and Spark."""

import typing as _typing
from importlib.metadata import version as _version

from braidlog._native import Pending, Record
from braidlog.storage.aio import AsyncLog, AsyncNode, open_async
from braidlog.storage.cursor import Cursor
from braidlog.storage.log import Log
from braidlog.storage.node import Node
from braidlog.storage.node import open_node as open  # noqa: A004
from braidlog.types import Producer

if _typing.TYPE_CHECKING:
    from braidlog.client import connect, connect_sync

__all__ = [
    "AsyncLog",
    "AsyncNode",
    "Cursor",
    "Log",
    "Node",
    "Pending",
    "Producer",
    "Record",
    "__version__",
    "connect",
    "connect_sync",
    "open",
    "open_async",
]

__version__ = _version("braidlog")


def __getattr__(name: str) -> object:
    """Import the client of a cluster when it is asked for: it needs an extra."""
    if name in ("connect", "connect_sync"):
        from braidlog import client

        return getattr(client, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
