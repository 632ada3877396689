"""`braidlog` with nodes whose syncs take longer: by the milliseconds in a file.

The file `sync_ms` beside the settings of a node may come and go while it runs. Only who
syncs is another one; the rest of the node is as it is.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from braidlog.cli import main
from braidlog.errors import LogError
from braidlog.node import server
from braidlog.store.node_store import NodeStore
from braidlog.store.threads import close_in_thread

__all__ = ["FILE", "SlowSyncer"]

FILE = "sync_ms"


class SlowSyncer:
    """One thread that waits for as long as the file says, and syncs."""

    def __init__(self, store: NodeStore) -> None:
        self._store = store
        self._file = Path(sys.argv[sys.argv.index("--config") + 1]).with_name(FILE)
        self._due = threading.Event()
        self._closing = False
        self._told = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self, synced: Callable[[], None]) -> None:
        self._synced = synced
        self._loop = asyncio.get_running_loop()
        self._store.start_housekeeper()
        self._thread.start()

    def wake(self) -> None:
        if self._store.ticket() > self._told:
            self._due.set()

    def _run(self) -> None:
        while True:
            self._due.wait()
            if self._closing:
                return
            self._due.clear()
            time.sleep(self._delay())
            try:
                self._told = self._store.sync()
            except LogError:
                return  # Who writes next hears of it.
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if not self._closing:
            self._synced()

    def _delay(self) -> float:
        try:
            return float(self._file.read_text()) / 1000
        except (OSError, ValueError):
            return 0.0  # It is not there, or being written.

    async def close(self) -> None:
        self._closing = True
        self._due.set()
        await asyncio.to_thread(self._thread.join)
        await close_in_thread(self._store.close)


if __name__ == "__main__":
    vars(server)["ThreadSyncer"] = SlowSyncer
    main()
