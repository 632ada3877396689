"""A durable, totally ordered log: embedded like SQLite, read by Arrow and Spark."""

import importlib as _importlib
import typing as _typing

from braidlog._native import Pending, Record
from braidlog.store.cursor import AsyncCursor, Cursor
from braidlog.store.log import Log
from braidlog.store.store import Store
from braidlog.store.store import open_store as open  # noqa: A004
from braidlog.types import Producer

if _typing.TYPE_CHECKING:
    from braidlog.client import connect, connect_async
    from braidlog.store.async_log import AsyncLog, AsyncStore, open_async

    __version__: str

__all__ = [
    "AsyncCursor",
    "AsyncLog",
    "AsyncStore",
    "Cursor",
    "Log",
    "Pending",
    "Producer",
    "Record",
    "Store",
    "__version__",
    "connect",
    "connect_async",
    "open",
    "open_async",
]

# Imported when they are asked for: the client needs an extra, and asyncio is a third of
# the time that a short program takes to start.
_LATE: _typing.Final = {
    "AsyncLog": "braidlog.store.async_log",
    "AsyncStore": "braidlog.store.async_log",
    "connect_async": "braidlog.client",
    "connect": "braidlog.client",
    "open_async": "braidlog.store.async_log",
}


def __getattr__(name: str) -> object:
    """Import what the package has when somebody asks for it."""
    if name == "__version__":
        found: object = _importlib.import_module("importlib.metadata").version(__name__)
    elif name in _LATE:
        found = getattr(_importlib.import_module(_LATE[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Name what is imported late, too."""
    return sorted({*globals(), *__all__})
