"""The metadata as this node knows it: which tables it keeps, and where logs are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from braidlog.client.connection.routing import Routes
from braidlog.errors import DeadlineError, NotReadyError
from braidlog.metarepo.pending import Answer
from braidlog.node.peers.links import Peers
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.tables.questions import Questions
from braidlog.wire.messages import GetMetadata, Metadata
from braidlog.wire.tables import TableInfo

__all__ = ["CatalogView", "NodeRoutes"]


class NodeRoutes(Routes):
    """Routes of a node: it reads from itself first, then from those it reaches."""

    def __init__(self, metadata: Metadata, node: int, peers: Peers) -> None:
        """Index the metadata for a node."""
        super().__init__(metadata)
        self._node = node
        self._peers = peers

    def readers(self, stream: int) -> tuple[int, ...]:
        """Return nodes that can serve what is committed, the best first."""
        nodes = super().readers(stream)
        return tuple(sorted(nodes, key=self._distance))

    def _distance(self, node: int) -> int:
        return 0 if node == self._node else 2 - self._peers.is_connected(node)


class CatalogView:
    """The newest metadata, by the member of the repository or by what a voter said."""

    def __init__(
        self, route: RepositoryRoute, peers: Peers, questions: Questions
    ) -> None:
        """Know nothing yet."""
        self._route = route
        self._peers = peers
        self._questions = questions
        self._routes: NodeRoutes | None = None
        self.listeners: list[Callable[[], None]] = []

    @property
    def routes(self) -> NodeRoutes:
        """Return the newest metadata.

        Raises:
            NotReadyError: nothing is known yet.
        """
        if self._routes is None:
            raise NotReadyError("this node knows nothing of the cluster yet")
        return self._routes

    @property
    def is_settled(self) -> bool:
        """Tell whether what is not listed does not exist."""
        return self._routes is not None and self._routes.metadata.settled

    @property
    def tables(self) -> tuple[TableInfo, ...]:
        """Return all tables that are known."""
        return () if self._routes is None else self._routes.metadata.tables

    def end(self, log: bytes) -> int:
        """Return the last position of a log that is known; 0 if it is not."""
        member = self._route.member
        if member is not None:
            known = member.group.repository.state.logs.get(log)
            return known.high_watermark if known is not None else 0
        info = next(
            (each for each in self.routes.metadata.logs if each.log == log), None
        )
        return info.high_watermark if info is not None else 0

    def look(self) -> None:
        """Take what is newer, and tell the listeners."""
        member, heard = self._route.member, self._route.directory.metadata
        if member is not None:
            self.take(member.metadata())
        elif heard is not None:
            self.take(heard)

    def take(self, metadata: Metadata) -> None:
        """Take metadata, if it is not older than what is known."""
        if self._routes is not None and metadata.index < self._routes.index:
            return
        self._routes = NodeRoutes(metadata, self._route.node, self._peers)
        for listener in list(self.listeners):
            listener()

    async def confirm(self) -> NodeRoutes:
        """Return metadata that is as new as this call.

        Raises:
            LogError: nobody can say.
        """
        member = self._route.member
        if member is None:
            question = GetMetadata(linearizable=True)
            answer, _ = await self._questions.node(self._voter(), question)
            if not isinstance(answer, Metadata):
                msg = f"a voter answered with {type(answer).__name__}"
                raise NotReadyError(msg)
            self.take(answer)
            return self.routes
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def answered(answer: Answer) -> None:
            if done.done():
                return
            if answer.error is not None:
                done.set_exception(answer.error)
            else:
                done.set_result(None)

        member.read(GetMetadata(linearizable=True), loop.time(), answered)
        try:
            async with asyncio.timeout(self._questions.patience):
                await done
        except TimeoutError as error:
            msg = "the metadata repository did not confirm what this node knows in time"
            raise DeadlineError(msg) from error
        self.take(member.metadata())
        return self.routes

    def _voter(self) -> int:
        if voter := self._route.connected_voter:
            return voter
        msg = "this node has no connection to a voter of the metadata repository"
        raise NotReadyError(msg)
