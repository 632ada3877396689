"""Pinned versions: how many there are, and who has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from braidlog.errors import InvalidArgumentError, NotReadyError
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.source import Pins
from braidlog.node.tables.worker import InlineWorker
from braidlog.wire.rows import PinRuns


@dataclass
class Version:
    released: int = 0
    flushed: int = 7
    files: tuple[Any, ...] = ()

    def release(self) -> None:
        self.released += 1


@dataclass
class Table:
    versions: list[Version] = field(default_factory=list)

    def pin(self) -> Version:
        self.versions.append(Version())
        return self.versions[-1]


class Pinning:
    def __init__(self) -> None:
        settings = TableSettings(pins_max=6, pins_of_one_max=3)
        self.table = Table()
        self.gone: set[object] = set()
        self.pins = Pins(
            settings, InlineWorker(), 100, lambda: 2, self.gone.__contains__
        )

    async def pin(self, who: str, ms: int = 1000, now: float = 0.0) -> int:
        message = PinRuns(b"t", ms)
        pinned = await self.pins.pin(self.table, message, who, now)  # type: ignore[arg-type]
        return pinned.pin


async def test_one_connection_leaves_versions_to_others() -> None:
    pinning = Pinning()
    mine = [await pinning.pin("greedy") for _ in range(3)]
    for _ in range(3):
        with pytest.raises(NotReadyError, match="this connection has 3") as refused:
            await pinning.pin("greedy")
        assert "go first" in (refused.value.hint or "")
    assert len(pinning.table.versions) == 3
    others = [await pinning.pin(who) for who in ("a", "b", "c")]
    with pytest.raises(NotReadyError, match="this node has 6"):
        await pinning.pin("d")
    for number, who in zip(others, ("a", "b", "c"), strict=True):
        pinning.pins.let_go(number, who)
    for number in mine[1:]:
        pinning.pins.let_go(number, "greedy")
    await pinning.pin("greedy")
    assert sum(version.released for version in pinning.table.versions) == 5


async def test_a_connection_lets_go_of_its_own_versions() -> None:
    pinning = Pinning()
    number = await pinning.pin("copying")
    with pytest.raises(InvalidArgumentError, match=f"another .* pinned .* {number}"):
        pinning.pins.let_go(number, "other")
    assert len(pinning.pins) == 1
    pinning.gone.add("copying")
    pinning.pins.let_go(number, "copying, connected again")
    pinning.pins.let_go(number, "copying, connected again")
    assert [version.released for version in pinning.table.versions] == [1]


async def test_pins_that_nobody_lets_go_of_end() -> None:
    pinning = Pinning()
    for ms in (0, 1000, 1 << 62):
        await pinning.pin("a", ms)
    pinning.pins.tick(0.5)
    assert len(pinning.pins) == 2
    pinning.pins.tick(59.0)
    assert len(pinning.pins) == 1
    pinning.pins.tick(61.0)
    assert len(pinning.pins) == 0
    assert [version.released for version in pinning.table.versions] == [1, 1, 1]
    await pinning.pin("a", now=61.0)
    pinning.pins.drop(b"t")
    assert pinning.table.versions[-1].released == 1
