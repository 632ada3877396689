"""Logs beside the one under load: created, filled, read and deleted at any moment."""

from __future__ import annotations

from random import Random

from braidlog.client.client import AsyncClient
from braidlog.errors import NotFoundError, TrimmedError
from sim.errors import ViolationError

__all__ = ["SideLogs"]

_RECORDS = 12


class SideLogs:
    """One short log at a time, with a name of its own."""

    def __init__(self, client: AsyncClient, random: Random, log: str) -> None:
        """Leave the log of that name alone."""
        self._client = client
        self._random = random
        self._log = log
        self._count = 0

    async def act(self) -> None:
        """Create a log, append to it, read it and delete it.

        Raises:
            ViolationError: it has not what was acknowledged.
            LogError: something failed; `clear` deletes what is left.
        """
        self._count += 1
        name = f"side-{self._count}"
        log = await self._client.create_log(
            name,
            streams=self._random.randint(1, 2),
            replication=2,
            min_replicas=1,
            retention_bytes=self._random.choice([None, None, 1]),
        )
        sent = [f"{name}/{number}".encode() for number in range(_RECORDS)]
        positions = await log.append_many(sent)
        expected = dict(zip(positions, sent, strict=True))
        try:
            found = {each.position: each.value async for each in log.read(1, log.end)}
        except TrimmedError as error:
            # Retention took the beginning: the rest has to be there.
            records = log.read(error.first, log.end)
            found = {each.position: each.value async for each in records}
            expected = {at: expected[at] for at in expected if at >= error.first}
        if found != expected:
            raise ViolationError(f"{name} has {found} instead of {expected}")
        await self._client.delete_log(name)
        if name in await self._client.logs():
            raise ViolationError(f"{name} was deleted and is there")

    async def clear(self) -> None:
        """Delete what is left; a delete whose answer was lost may have been done."""
        for name in await self._client.logs():
            if name != self._log:
                try:
                    await self._client.delete_log(name)
                except NotFoundError:
                    continue
