"""Tables for asyncio: the same calls, awaited."""

from pathlib import Path

import pytest

import braidlog
from braidlog.errors import NotFoundError


async def test_the_calls_of_a_table(tmp_path: Path) -> None:
    async with braidlog.open_async(tmp_path / "d") as store:
        log = await store.create_log("orders")
        stock = await store.create_table(
            "stock", log="orders", indexes={"by_value": "value:text"}
        )
        position = await log.append(b"Oslo", key=b"tea")
        record = await stock.get(b"tea", after=position)
        assert record == await log.get(position)
        assert await stock.wait(position, timeout=5)
        assert await stock.applied() == position
        async with stock.at(position) as snapshot:
            await log.append(b"Rome", key=b"milk")
            assert [each.key async for each in snapshot.scan()] == [b"tea"]
            assert snapshot.position == position
            by_value = snapshot.index("by_value")
            assert [each.key async for each in by_value.scan()] == [b"tea"]
        assert [each.key async for each in stock.scan()] == [b"milk", b"tea"]
        index = await stock.index("by_value")
        assert [each.key async for each in index.get("Rome")] == [b"milk"]
        assert (await stock.to_arrow())["key"].to_pylist() == [b"milk", b"tea"]
        assert [len(each) async for each in stock.batches()] == [2]
        async with store.ddl() as change:
            change.rename("stock", "goods")
            change.create_index("goods", "late", "value:text")
        assert await store.tables() == ["goods"]
        late = await stock.index("late")
        assert await late.wait(timeout=30)
        assert await stock.verify() == (2, 4)
        await store.drop_table("goods")
        with pytest.raises(NotFoundError):
            await stock.get(b"tea")
