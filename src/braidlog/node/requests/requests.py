"""Requests of clients that are no appends: reads, metadata, commands.

Any node takes any of them. What it cannot answer itself it passes on: commands to the
leader of the metadata repository, questions for metadata to any of its members. So a
client needs no more than one node that lives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from braidlog.errors import InvalidArgumentError, LogError
from braidlog.metarepo.pending import Answer
from braidlog.node.peers.links import Peers
from braidlog.node.replication.replicas import Replicas
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests.admission import admit, refuse_pin
from braidlog.node.requests.forwarding import Answer as PeerAnswer
from braidlog.node.requests.forwarding import Forwarding, not_leading
from braidlog.node.requests.log_ends import LogEnds
from braidlog.node.requests.metadata import Answers, Scheduler
from braidlog.node.requests.permission import Permission
from braidlog.serving.sessions import Request
from braidlog.wire.commands import decode
from braidlog.wire.messages import (
    Execute,
    Executed,
    GetLogEnd,
    GetMetadata,
    Message,
    Read,
)
from braidlog.wire.roles import Role

_NOTHING: Final = memoryview(b"")


class Requests:
    """Answers requests, or has them answered."""

    def __init__(
        self,
        route: RepositoryRoute,
        peers: Peers,
        replicas: Replicas,
        *,
        patience: float,
        loop: Scheduler,
        full: Callable[[], bool],
    ) -> None:
        """Wait ``patience`` seconds for another node.

        ``full`` tells whether sessions hold as many answers as they may.
        """
        self._route = route
        self._replicas = replicas
        self._loop = loop
        self.permission = Permission(route, replicas.log_of)
        self._forwarding = Forwarding(peers.request, patience)
        self.answers = Answers(route, self.forward, loop, full)
        self._ends = LogEnds(route, self.forward, loop, full)

    @property
    def waiting(self) -> int:
        """Return how many wait for other nodes, or for the repository here."""
        member = self._route.member
        here = member.waiting if member is not None else 0
        return len(self._forwarding) + len(self.answers) + here

    def tick(self, now: float) -> None:
        """Let time pass: nobody waits for ever for a node that hangs."""
        self.answers.tick(now)
        self._ends.tick(now)
        if self._forwarding:
            member = self._route.member
            # Who is no member sends to any that is, whoever leads.
            leader, term = member.leads_now() if member is not None else (0, 0)
            self._forwarding.tick(now, leader, term)

    def take(
        self, request: Request, message: Message, payload: memoryview, role: Role
    ) -> None:
        """Take a request; it is answered now or later.

        Raises:
            LogError: it is refused, and nothing was changed.
        """
        if isinstance(message, Read):
            self._replicas.read(request, message, self._loop.now)
        elif isinstance(message, GetMetadata):
            forward = not self._votes(request.session.connection.peer)
            self.answers.take(request, message, forward=forward)
        elif isinstance(message, GetLogEnd):
            self._ends.take(request, message)
        elif isinstance(message, Execute):
            self._checked(request, message, bytes(payload), role)
        else:
            raise InvalidArgumentError(
                f"a node does not serve requests of type {type(message).__name__}"
            )
        self._loop.changed()

    def _checked(
        self, request: Request, message: Execute, command: bytes, role: Role
    ) -> None:
        peer = request.session.connection.peer
        rights = request.session.rights
        if rights.grants:
            role = self.permission.command(decode(command), rights)
        decoded = admit(command, role)
        if not peer:
            refuse_pin(decoded)
        forward = not self._votes(peer)
        self.execute(message.call, command, _to(request), forward=forward)

    def _votes(self, node: int) -> bool:
        """Tell whether a peer takes this node for the leader.

        It votes, so it knows: what it sends, passed on, could go in circles. Those who
        do not vote send to any member.
        """
        member = self._route.member
        return member is not None and node in member.group.raft.core.membership.voters

    def execute(
        self, call: bytes, command: bytes, answer: PeerAnswer, *, forward: bool = True
    ) -> None:
        """Execute a command on the leader; elsewhere only with `forward`."""
        route = self._route
        member, leader = route.member, route.way_to_leader
        if member is not None and leader == route.node:
            member.execute(call, command, lambda done: answer(*_executed(done)))
        elif leader and forward:
            self._forwarding.forward(
                leader, Execute(call), (command,), answer, self._loop.now
            )
        else:
            answer(not_leading(route.node, leader), _NOTHING)
        self._loop.changed()

    def forward(
        self,
        node: int,
        message: Message,
        done: Callable[[Message | LogError], None],
    ) -> None:
        """Ask another node for what the repository knows."""
        now = self._loop.now
        self._forwarding.forward(node, message, (), lambda answer, _: done(answer), now)


def _to(request: Request) -> PeerAnswer:
    def answer(message: Message | LogError, payload: memoryview) -> None:
        if isinstance(message, LogError):
            request.fail(message)
        else:
            parts: Sequence[memoryview] = (payload,) if payload else ()
            request.answer(message, parts)

    return answer


def _executed(done: Answer) -> tuple[Message | LogError, memoryview]:
    if done.error is not None:
        return done.error, _NOTHING
    return Executed(done.index), memoryview(done.payload)
