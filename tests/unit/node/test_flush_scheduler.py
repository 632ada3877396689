"""How often a node carries something out, and that nothing is left over."""

import asyncio

from braidlog.node.flush_scheduler import FlushScheduler
from braidlog.serving.transport import Outbox


def played(play: str) -> list[str]:
    """Return what happened, one word each, in a few turns of the loop."""
    happened: list[str] = []

    async def turn() -> None:
        def flush() -> None:
            happened.append("flush")
            turns.wrote = play != "nothing written"
            turns.stirred = False
            if play == "while it flushes" and happened.count("flush") == 1:
                turns.soon()
                happened.append("again" if turns.stirred else "lost")

        def synced() -> None:
            turns.soon()
            happened.append("synced")

        turns = FlushScheduler(Outbox(), flush, lambda: happened.append("sync"))
        if play == "a sync":
            turns.soon()
            turns.now(synced)
        else:
            turns.soon()
            turns.soon()
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(turn())
    return happened


def test_what_comes_in_one_turn_is_carried_out_once() -> None:
    assert played("twice") == ["flush", "sync"]


def test_nothing_is_synced_if_nothing_was_written() -> None:
    assert played("nothing written") == ["flush"]


def test_what_comes_while_it_is_carried_out_gets_no_turn_of_its_own() -> None:
    assert played("while it flushes") == ["flush", "again", "sync"]


def test_a_sync_takes_along_what_waits_and_what_it_lets_go() -> None:
    assert played("a sync") == ["synced", "flush", "sync"]
