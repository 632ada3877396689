"""Append from many tasks of one event loop; their records share syncs."""

import asyncio
import sys
import tempfile

import braidlog


async def visit(log: braidlog.AsyncLog, visitor: int) -> list[int]:
    return [await log.append(b"visitor %d, page %d" % (visitor, i)) for i in range(5)]


async def main(data: str) -> None:
    async with braidlog.open_async(data) as store:
        log = await store.create_log("visits", exist_ok=True)
        async with asyncio.TaskGroup() as group:
            for visitor in range(20):
                group.create_task(visit(log, visitor))
        print(log.end - 1, "records durable")
        async for record in log.read(limit=3):
            print(record.position, record.value.decode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
