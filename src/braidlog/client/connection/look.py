"""One look at a cluster, whatever is left of it, that never takes long.

Theory of operation: who decides says how the cluster is, and any node passes the
question on. While nobody does, each node still says what it knows. So both are asked at
the same time: the leader through any node, again and again; and each node for itself,
those that the seeds name and those that are found through them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from braidlog.client.connection.attempts import first_of
from braidlog.client.connection.links import Links
from braidlog.client.retry import Verdict, verdict_of
from braidlog.errors import LogError, RemoteProtocolError
from braidlog.wire.messages import GetMetadata, Metadata

_PAUSE_S: Final = 0.05
_HEDGE_S: Final = 0.2
_NODES_MAX: Final = 64
"""Nodes that are asked for themselves."""


@dataclass(slots=True)
class Look:
    """What there was to see."""

    judged: Metadata | None = None
    """What the leader says; None if none was found in time."""
    known: dict[str, Metadata] = field(default_factory=dict)
    """What nodes know for themselves, by their address; complete without a leader."""
    silent: dict[str, LogError] = field(default_factory=dict)
    """Why nodes said nothing, by their address."""

    @property
    def newest(self) -> Metadata | None:
        """The newest metadata that a node knows."""
        return max(self.known.values(), key=lambda each: each.index, default=None)

    @property
    def hopeless(self) -> bool:
        """Whether too few answer for there to be a leader, once all were asked."""
        newest = self.newest
        if newest is None:
            return bool(self.silent)
        voters = [node.address for node in newest.nodes if node.voter]
        here = sum(address in self.known for address in voters)
        # Who knows a leader may reach nodes that this client does not.
        leads = any(each.leader for each in self.known.values())
        return not leads and here <= len(voters) // 2


async def look(links: Links, seeds: Iterable[str], within: float) -> Look:
    """Look for so many seconds at most; the leader's answer ends it.

    Raises:
        LogError: a node says what no other one will say otherwise: that the token is
            refused, or that it is of another cluster.
    """
    looker = _Looker(links, seeds)
    asking = asyncio.create_task(looker.ask_leader())
    spreading = asyncio.create_task(looker.ask_all())
    tasks = {asking, spreading}
    try:
        async with asyncio.timeout(within):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and looker.found.hopeless:
                return looker.found
            looker.found.judged = await asking
    except TimeoutError as error:
        if isinstance(error, LogError):
            raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return looker.found


class _Looker:
    def __init__(self, links: Links, seeds: Iterable[str]) -> None:
        self.found = Look()
        self._links = links
        self._addresses = dict.fromkeys(seeds)

    async def ask_leader(self) -> Metadata:
        """Ask the leader through any node, until it answers."""
        request = GetMetadata(linearizable=True, by_leader=True)
        while True:
            asked = [partial(self._ask, each, request) for each in self._addresses]
            try:
                return await first_of(asked, _HEDGE_S)
            except LogError as error:
                if verdict_of(error) is Verdict.FINAL:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def ask_all(self) -> None:
        """Ask each node what it knows."""
        asked: set[str] = set()
        while new := [each for each in self._addresses if each not in asked]:
            asked.update(new)
            async with asyncio.TaskGroup() as group:
                for address in new[:_NODES_MAX]:
                    group.create_task(self._ask_one(address))

    async def _ask_one(self, address: str) -> None:
        try:
            answer = await self._ask(address, GetMetadata())
        except LogError as error:
            self.found.silent[address] = error
            return
        self.found.known[address] = answer
        for node in answer.nodes:
            self._addresses.setdefault(node.address)

    async def _ask(self, address: str, request: GetMetadata) -> Metadata:
        # Bounded by the look as a whole.
        answer, _ = await self._links.ask(address, request, within=3600.0)
        if not isinstance(answer, Metadata):
            msg = f"{type(answer).__name__} is no answer to GetMetadata"
            raise RemoteProtocolError(msg)
        return answer
