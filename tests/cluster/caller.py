"""A process that transfers money between accounts and writes down what it was told.

    python -m cluster.caller --hosts ADDRESSES --acks FILE --seed N

A line of the file is `begun CALL`, `answer CALL LEFT` or `failed CALL OUTCOME ERROR`.
A call that failed is repeated with the same id until it is answered. SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from pathlib import Path

from braidlog.app import Abort, connect_async
from braidlog.app.caller.caller import AsyncCaller
from braidlog.app.execution.entries import CallId
from braidlog.client.settings import ClientSettings
from braidlog.errors import LogError
from cluster.banks import REFUSED

ACCOUNTS = 12
SETTINGS = ClientSettings(timeout_s=20, attempt_timeout_s=2)


async def transfer(bank: AsyncCaller, call: CallId, *arguments: int) -> int:
    """Return what is left, or that it was refused."""
    try:
        left, _ = await bank.call("transfer", *arguments, call_id=call)
    except Abort:
        return REFUSED
    return int(left)


async def work(
    bank: AsyncCaller, acks: int, numbers: random.Random, stop: asyncio.Event
) -> None:
    while not stop.is_set() and os.getppid() != 1:
        source, target = numbers.sample(range(ACCOUNTS), 2)
        amount = numbers.randint(1, 400)
        call = await new_call(bank, stop)
        if call is None:
            return
        os.write(acks, f"begun {call.hex()}\n".encode())
        while True:
            try:
                left = await transfer(bank, call, source, target, amount)
            except LogError as error:
                line = f"failed {call.hex()} {error.outcome} {error!r}\n"
                os.write(acks, line.encode())
                if not error.retryable:
                    raise
                if stop.is_set():
                    return
            else:
                os.write(acks, f"answer {call.hex()} {left}\n".encode())
                break
        await asyncio.sleep(0.002)


async def new_call(bank: AsyncCaller, stop: asyncio.Event) -> CallId | None:
    while not stop.is_set():
        try:
            return await bank.new_call_id()
        except LogError as error:
            if not error.retryable:
                raise
    return None


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--acks", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--tasks", type=int, default=4)
    given = parser.parse_args()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    acks = os.open(given.acks, os.O_WRONLY | os.O_APPEND)  # noqa: ASYNC230, RUF100
    async with (
        connect_async(given.hosts, application="bank", settings=SETTINGS) as bank,
        asyncio.TaskGroup() as group,
    ):
        for number in range(given.tasks):
            numbers = random.Random(given.seed * 1000 + number)
            group.create_task(work(bank, acks, numbers, stop))


if __name__ == "__main__":
    asyncio.run(main())
