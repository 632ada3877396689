"""A durable, totally ordered log: embedded like SQLite, read by Arrow and Spark."""

from importlib.metadata import version as _version

from braidlog._native import Pending, Record
from braidlog.storage.aio import AsyncLog, AsyncNode, open_async
from braidlog.storage.cursor import Cursor
from braidlog.storage.log import Log
from braidlog.storage.node import Node
from braidlog.storage.node import open_node as open  # noqa: A004
from braidlog.types import Producer

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
    "open",
    "open_async",
]

__version__ = _version("braidlog")
