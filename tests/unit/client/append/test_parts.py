"""Records of one entry that go to several streams, once or again."""

from __future__ import annotations

import asyncio

from braidlog._native import Entry
from braidlog.client.append.change import Records
from braidlog.client.append.parts import Parts, Places, divide, positions_of
from braidlog.client.batches import Columns


def entry(records: Columns, count: int, size: int) -> Records:
    waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return Entry(waiter, records, count, size, 1e9)


def parted(whole: Records, streams: list[int]) -> dict[int, Records]:
    """Divide an entry; return its part of each stream."""
    parts = divide(whole, streams, entry)
    Parts(whole, [part for _, part in parts], lambda _: True)
    return {stream: part for stream, (_, part) in parts}


async def test_each_record_is_told_where_it_is_however_often_it_was_parted() -> None:
    values = [b"%d" % n for n in range(6)]
    whole = entry(Columns(values, None, 1, None), 6, 60)
    first = parted(whole, [1, 2, 1, 2, 1, 2])
    # The streams change again before the second part is stored.
    second = parted(first[2], [3, 4, 3])
    first[1].waiter.set_result(10)
    second[3].waiter.set_result(50)
    second[4].waiter.set_result(40)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    told = whole.waiter.result()
    assert positions_of(told, 6) == (10, 50, 11, 40, 12, 51)
    assert told == 10
    assert positions_of(Places((7, 3)), 2) == (7, 3)
    assert positions_of(5, 3) == range(5, 8)
