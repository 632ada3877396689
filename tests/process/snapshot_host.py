"""Kills a host at a given step of its second snapshot, and says what it acknowledged.

    python tests/process/snapshot_host.py DATA STEP TURN

``TURN`` says at which of the steps of that name, counted from 0 in that snapshot.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from braidlog.app import Host, SnapshotSettings
from unit.app.banking import make_bank

OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}
SETTINGS = SnapshotSettings(automatic=False, kept=1, reserve_bytes=1 << 20)
CALLS = 30


def open_bank(data: Path, step: Any = None) -> Host:
    """Open it, without automatic snapshots."""
    return make_bank().open(data, snapshots=SETTINGS, step=step, **OPTIONS)


def main(data: Path, step: str, turn: int) -> None:
    """Work, and die."""
    seen: list[str] = []
    armed = False

    def on_step(name: str) -> None:
        seen.append(name)
        if armed and name == step and seen.count(name) == turn + 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def work(host: Host) -> None:
        for account in range(CALLS):
            host.call("deposit", account % 7, 1)
            os.write(1, b".")

    with open_bank(data, on_step) as host:
        work(host)
        host.snapshot()
        work(host)
        seen.clear()
        armed = True
        host.snapshot()
    sys.exit(f"there is no step {step!r} {turn}: {seen}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
