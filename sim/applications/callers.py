"""Callers: they call any host, repeat what failed, and keep what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from braidlog.app import Abort
from braidlog.app.caller.caller import AsyncCaller
from braidlog.app.errors import CallExpiredError
from braidlog.client.connection.sockets import socket_connector
from braidlog.client.settings import ClientSettings
from braidlog.errors import FencedError, LogError
from sim.applications.bank import ACCOUNTS, NAME
from sim.applications.ledger import REFUSED, Ledger, Read, Told
from sim.errors import ViolationError
from sim.world import Life, World

__all__ = ["Callers", "operate", "run_caller"]

_PAUSE_S: Final = 0.02
_TASKS: Final = 3
_AFTER_CALM: Final = 3
_RETRY_S: Final = 0.1
_WALL_ORIGIN_S: Final = 1_700_000_000


@dataclass(slots=True)
class Callers:
    """What all callers have in common."""

    world: World
    seeds: Sequence[str]
    ledger: Ledger
    expired: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def wall_s(self) -> float:
        """Return the time of day."""
        return _WALL_ORIGIN_S + self.world.now

    def opened(
        self, life: Life, seeds: Sequence[str] = (), *, timeout_s: float = 4.0
    ) -> AsyncCaller:
        """Return a caller that has asked nobody yet."""
        settings = ClientSettings(
            timeout_s=timeout_s,
            attempt_timeout_s=1.0,
            connect_timeout_s=0.5,
            entropy=life.random.randbytes,
            clock=lambda: int(self.wall_s() * 1e6),
        )
        hosts = list(seeds) or life.random.sample(list(self.seeds), len(self.seeds))
        connector = socket_connector(cluster=NAME)
        return AsyncCaller(hosts, connector=connector, settings=settings)

    def failed(self, who: str, error: LogError) -> None:
        """Count an error that the caller has to live with.

        Raises:
            ViolationError: nobody should ever get such an error.
        """
        name = type(error).__name__
        if not error.retryable and error.outcome == "not_stored":
            raise ViolationError(f"{who} gets {name}: {error.message}") from error
        self.errors[name] = self.errors.get(name, 0) + 1
        self.world.note(who, f"{name}: {error.message}")


async def run_caller(life: Life, callers: Callers) -> None:
    """Call until the storm is over, and then until everything is answered."""
    caller = callers.opened(life)
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(_TASKS):
                worker = _Worker(life, callers, caller, f"{life.name}.{number}")
                group.create_task(worker.run())
    finally:
        await caller.close()


class _Worker:
    """One call after the other."""

    def __init__(
        self, life: Life, callers: Callers, caller: AsyncCaller, name: str
    ) -> None:
        self._callers = callers
        self._caller = caller
        self._world = life.world
        self._random: Random = life.random
        self._name = name
        # The last ones that were answered, to be repeated.
        self._done: list[tuple[Told, str, list[int]]] = []

    async def run(self) -> None:
        calm, left = self._world.calm, _AFTER_CALM
        while left:
            left -= calm.is_set()
            await asyncio.sleep(self._random.expovariate(1 / _PAUSE_S))
            draw = self._random.random()
            if draw < 0.15:
                await self._read()
            elif draw < 0.22 and self._done:
                await self._repeat()
            else:
                await self._call()

    def _drawn(self) -> tuple[str, list[int]]:
        draw = self._random.random()
        source, target = self._random.sample(range(ACCOUNTS), 2)
        if draw < 0.3:
            return "deposit", [source, self._random.randint(1, 100)]
        if draw < 0.4:
            return "interest", [source]
        return "transfer", [source, target, self._random.randint(1, 60)]

    async def _call(self) -> None:
        procedure, arguments = self._drawn()
        begin = self._world.now
        try:
            call = await self._caller.new_call_id()
        except LogError as error:
            self._callers.failed(self._name, error)
            await asyncio.sleep(_RETRY_S)
            return
        told = Told(self._name, bytes(call), begin)
        self._callers.ledger.told.append(told)
        while True:
            try:
                answer = await self._asked(procedure, arguments, told)
            except CallExpiredError as error:
                # It may have been executed, or not: nobody remembers.
                self._callers.expired += 1
                self._world.note(self._name, f"{call.hex()} {error.message}")
                return
            except LogError as error:
                self._callers.failed(self._name, error)
                await asyncio.sleep(_RETRY_S)
                continue
            break
        told.answer, told.end = answer, self._world.now
        self._world.note(self._name, f"{procedure} {call.hex()} gave {answer}")
        self._done = [*self._done[-2:], (told, procedure, arguments)]

    async def _asked(self, procedure: str, arguments: list[int], told: Told) -> Any:
        from braidlog.app.execution.entries import CallId

        try:
            return await self._caller.call(
                procedure, *arguments, call_id=CallId(told.call)
            )
        except Abort:
            return REFUSED

    async def _repeat(self) -> None:
        """Call once more what was answered: the answer is the same."""
        told, procedure, arguments = self._random.choice(self._done)
        try:
            answer = await self._asked(procedure, arguments, told)
        except CallExpiredError:
            return
        except LogError as error:
            self._callers.failed(self._name, error)
            return
        if answer != told.answer:
            what = f"{procedure} {told.call.hex()} gave {told.answer}"
            raise ViolationError(f"{what} first, and {answer} when it was repeated")

    async def _read(self) -> None:
        account: int | None = self._random.randrange(ACCOUNTS)
        arguments = [account]
        if self._random.random() < 0.3:
            account, arguments = None, []
        procedure = "total" if account is None else "balance"
        begin = self._world.now
        try:
            value = await self._caller.call(procedure, *arguments)
        except LogError as error:
            self._callers.failed(self._name, error)
            return
        end = self._world.now
        read = Read(self._name, account, int(value), begin, end)
        self._callers.ledger.reads.append(read)


async def operate(life: Life, callers: Callers, every_s: float) -> int:
    """Make another host the active one now and then; how often that went well."""
    promoted, done = 0, False
    while not (done and life.world.calm.is_set()):
        await asyncio.sleep(life.random.expovariate(1 / every_s))
        where = life.random.choice(list(callers.seeds))
        done = await _promote(life, callers, where)
        promoted += done
    return promoted


async def _promote(life: Life, callers: Callers, where: str) -> bool:
    caller = callers.opened(life, [where])
    try:
        async with asyncio.timeout(3.0):
            await caller.promote(where)
    except FencedError as error:
        life.world.note(life.name, f"{where}: {error.message}")
    except (LogError, TimeoutError) as error:
        life.world.note(life.name, f"{where}: {error}")
    else:
        life.world.note(life.name, f"{where} is the active host")
        return True
    finally:
        await caller.close()
    return False
