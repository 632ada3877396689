"""A key-value store: put, get, delete, compare-and-set, exchange, and a time to live.

python examples/keyvalue.py [directory]
"""

import asyncio
import sys
import tempfile
from typing import Any

from braidlog.app import Abort, Application, Context

store = Application(
    "keyvalue",
    partitions=8,
    schema="CREATE TABLE item(key TEXT PRIMARY KEY, value, version INT, ends INT)",
)
FOUND = "SELECT value, version FROM item WHERE key = ? AND (ends IS NULL OR ends > ?)"


@store.procedure(key="key")
def put(ctx: Context, key: str, value: Any, ttl_ms: int | None = None) -> int:
    """Store a value, and return its version."""
    now = ctx.now
    row = ctx.row(FOUND, (key, now))
    version = row[1] + 1 if row else 1
    ends = None if ttl_ms is None else now + ttl_ms * 1000
    ctx.execute("REPLACE INTO item VALUES (?, ?, ?, ?)", (key, value, version, ends))
    return version


@store.procedure(key="key")
def swap(ctx: Context, key: str, version: int, value: Any) -> bool:
    """Store a value if the key still has the given version."""
    row = ctx.row(FOUND, (key, ctx.now))
    if (row[1] if row else 0) != version:
        return False
    ctx.execute("REPLACE INTO item VALUES (?, ?, ?, NULL)", (key, value, version + 1))
    return True


@store.procedure(key="key")
def delete(ctx: Context, key: str) -> bool:
    """Remove a value; return whether there was one."""
    gone = ctx.execute("DELETE FROM item WHERE key = ? RETURNING key", (key,))
    return bool(gone)


@store.procedure(partitions=lambda one, other: [one, other])
def exchange(ctx: Context, one: str, other: str) -> None:
    """Exchange the values of two keys, on both partitions or on none."""
    rows = {key: ctx.on(key).row(FOUND, (key, ctx.now)) for key in (one, other)}
    for key, source in ((one, other), (other, one)):
        mine, theirs = rows[key], rows[source]
        if mine is None or theirs is None:
            raise Abort("both keys must be there")
        row = (key, theirs[0], mine[1] + 1)
        ctx.on(key).execute("REPLACE INTO item VALUES (?, ?, ?, NULL)", row)


@store.procedure(key="key", read_only=True)
def get(ctx: Context, key: str) -> list[Any] | None:
    """Return value and version, or None."""
    row = ctx.row(FOUND, (key, ctx.now))
    return list(row) if row else None


async def main(directory: str) -> None:
    """Count in one key from many tasks without losing an update."""
    async with store.open_async(directory) as host:
        print("version", await host.call("put", "greeting", "hello"))
        print(await host.call("get", "greeting"))
        await host.call("put", "counter", 0)

        async def count() -> None:
            swapped = False
            while not swapped:
                value, version = await host.call("get", "counter")
                swapped = await host.call("swap", "counter", version, value + 1)

        await asyncio.gather(*(count() for _ in range(20)))
        print("counted to", (await host.call("get", "counter"))[0])
        await host.call("exchange", "greeting", "counter")
        print("exchanged:", (await host.call("get", "greeting"))[0])
        print("deleted:", await host.call("delete", "counter"))
        await host.call("put", "brief", "gone soon", ttl_ms=1)
        await asyncio.sleep(0.02)
        print("after its time:", await host.call("get", "brief"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
