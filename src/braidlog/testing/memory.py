"""A store in memory, for tests of programs that use one."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Final

from braidlog import _native
from braidlog.store.backend import FollowerBackend, WriterBackend
from braidlog.store.store import Store

# The directory on the disk in memory, which has nothing else.
_PATH: Final = Path("/memory")


class MemoryStore(Store):
    """A store in memory: ``with MemoryStore() as store``.

    It is a `Store` with all calls, limits and errors of one, and differs from the one
    that `braidlog.open` gives in one thing: its directory is in the memory of this
    process and goes with it.
    """

    def __init__(
        self, *, segment_bytes: int = 64 << 20, wal_bytes_max: int | None = None
    ) -> None:
        """Begin without logs; the limits are those of `braidlog.open`."""
        limits = {"segment_bytes": segment_bytes, "wal_bytes_max": wal_bytes_max}
        self._open(limits | {"disk": _native.MemoryDisk()}, read_only=False)

    def _open(self, options: dict[str, Any], *, read_only: bool) -> None:
        self._options = options
        if read_only:
            super().__init__(_PATH, FollowerBackend(_PATH, options), read_only=True)
            return
        writer = WriterBackend(_PATH, options | {"entropy": secrets.randbits(64)})
        super().__init__(_PATH, writer, read_only=False)

    def reopen(self, *, read_only: bool = False) -> MemoryStore:
        """Return another store with the same contents.

        A store for writing stands for a restart: this one is closed first. One to read
        follows this one, as a reader in another process would.

        Raises:
            LockedError: another store with these contents is open for writing.
        """
        if not read_only:
            self.close()
        store = MemoryStore.__new__(MemoryStore)
        store._open(self._options, read_only=read_only)
        return store
