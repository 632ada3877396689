"""Opening a directory in a thread that cannot be stopped."""

from __future__ import annotations

import os
import threading
from typing import Any

from braidlog.store.store import Store, open_store


class Opening:
    """An open in a thread, which whoever wanted it may leave at any moment."""

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Remember what to open."""
        self._path = path
        self._options = options
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._unwanted = False

    def run(self) -> Store:
        """Open, in a thread."""
        store = open_store(self._path, **self._options)
        with self._lock:
            self._store = store
            unwanted = self._unwanted
        if unwanted:
            store.close()
        return store

    def give_up(self) -> None:
        """Close what was opened, or will be: nobody else has it."""
        with self._lock:
            self._unwanted = True
            store = self._store
        if store is not None:
            store.close()
