"""When effects are carried out, on a loop that only remembers what it was given."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import pytest

from braidlog.node.turns import Turns


class Rig:
    """Turns that note what they do; `again` is called while they settle."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.again: Callable[[], object] = int
        loop = asyncio.get_running_loop()
        self.turns = Turns(loop, self.settle, lambda: self.done.append("finish"))

    def settle(self) -> None:
        self.done.append("settle")
        self.again()


async def test_what_is_asked_for_in_a_turn_is_done_once_at_its_end() -> None:
    rig = Rig()
    rig.turns.ask()
    rig.turns.ask()
    rig.turns.run()
    assert rig.done == []
    await asyncio.sleep(0)
    assert rig.done == ["settle", "finish"]
    rig.turns.run()
    assert rig.done == ["settle", "finish"] * 2


@pytest.mark.parametrize("how", ["ask", "run"])
async def test_what_changes_meanwhile_needs_no_other_turn(how: str) -> None:
    rig = Rig()
    rig.again = getattr(rig.turns, how)
    rig.turns.run()
    await asyncio.sleep(0)
    assert rig.done == ["settle", "finish"]


async def test_what_fails_leaves_the_next_turn_alone() -> None:
    rig = Rig()
    rig.again = deque[int]().pop
    with pytest.raises(IndexError):
        rig.turns.run()
    rig.again = int
    rig.turns.ask()
    await asyncio.sleep(0)
    assert rig.done == ["settle", "settle", "finish"]


async def test_nothing_is_done_after_the_end() -> None:
    rig = Rig()
    rig.turns.ask()
    rig.turns.close()
    await asyncio.sleep(0)
    assert rig.done == []
