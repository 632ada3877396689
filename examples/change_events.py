"""The files of git repositories as the state of an application: put and delete by path.

Each change of a file is a call. At the end a replay computes the state again, beside
the host, and both list the files.

    python examples/change_events.py [directory] [events.jsonl]
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from braidlog.app import (
    Application,
    BusyError,
    Context,
    Host,
    PendingCall,
    SnapshotSettings,
)
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay

PAGE = 2000  # Files; a result has at most 1 MiB.

changes = Application(
    "changes",
    partitions=4,
    schema="""
    CREATE TABLE file(
        source TEXT, path BLOB, blob TEXT NOT NULL, mode TEXT NOT NULL,
        PRIMARY KEY (source, path)) WITHOUT ROWID;
    """,
    results_kept=20_000,
)


@changes.procedure(key="path")
def put(ctx: Context, source: str, path: bytes, blob: str, mode: str) -> None:
    """Store the content of a path."""
    ctx.execute("REPLACE INTO file VALUES (?, ?, ?, ?)", (source, path, blob, mode))


@changes.procedure(key="path")
def delete(ctx: Context, source: str, path: bytes) -> bool:
    """Remove a path; return whether it existed."""
    gone = ctx.execute(
        "DELETE FROM file WHERE source = ? AND path = ? RETURNING 1", (source, path)
    )
    return bool(gone)


@changes.procedure(read_only=True, multi=True)
def page(ctx: Context, source: str, path: bytes, limit: int) -> list[list[Any]]:
    """Return the first files after a path, in order: source, path, blob, mode."""
    query = (
        "SELECT * FROM file WHERE (source, path) > (?, ?) ORDER BY source, path LIMIT ?"
    )
    rows = []
    for db in ctx.partitions.values():
        rows += db.execute(query, (source, path, limit))
    return [list(row) for row in sorted(rows)[:limit]]


def tree(host: Host) -> list[list[Any]]:
    """Return all files, page by page."""
    files: list[list[Any]] = []
    last: tuple[str, bytes] = ("", b"")
    while rows := host.call("page", *last, PAGE):
        files += rows
        last = rows[-1][0], rows[-1][1]
    return files


def submit(host: Host, event: dict[str, Any]) -> PendingCall:
    """Submit the call of one change, waiting while the host is busy."""
    # A path is bytes to git; those that are no text travel as lone surrogates.
    where = (event["source"], event["path"].encode("utf-8", "surrogateescape"))
    more = () if event["op"] == "delete" else (event["blob"], event["mode"])
    while True:
        try:
            return host.submit(event["op"], *where, *more)
        except BusyError:
            time.sleep(0.001)


def some() -> Iterator[dict[str, Any]]:
    """Yield the changes of a small repository."""
    for number in range(300):
        event = {"source": "demo", "path": f"src/{number % 40}.py", "op": "put"}
        if number % 7 == 0:
            yield {**event, "op": "delete"}
        else:
            yield {**event, "blob": f"{number:040x}", "mode": "100644"}


def run(directory: Path, events: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """Make the changes, replay them, and return the files."""
    # All of the log is replayed below, so nothing of it may be trimmed.
    kept = SnapshotSettings(automatic=False)
    with changes.open(directory / "app", snapshots=kept) as host:
        calls = [submit(host, event) for event in events]
        for call in calls:
            call.result()
        files = tree(host)
        position, hashes = host.hashes()
        source = commands_of(directory / "app")
        done = replay(changes, source, directory / "again", until=position)
        source.close()
    print(f"{done.commands} changes, {len(files)} files")
    same = list(done.hashes.values()) == hashes
    print("replayed:", "the same" if same else "something else")
    return files


def main() -> None:
    """Use the changes of a file, or those of a small repository."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    if len(sys.argv) > 2:
        with Path(sys.argv[2]).open(encoding="utf-8") as lines:
            run(directory, map(json.loads, lines))
    else:
        run(directory, some())


if __name__ == "__main__":
    main()
