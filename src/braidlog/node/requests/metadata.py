"""What a node answers to questions for the metadata.

*Theory of operation.* The metadata is encoded once for each version, for all that ask
within a moment. Questions that have to be passed on, or confirmed by a majority, are
gathered: one is under way, and answers all that came before it left. So the repository
has as much to do for one client as for ten thousand.

Polls wait in a table (`braidlog.node.requests.polls`). What is new is told to a slice
of them in each turn of the loop, with all other work between, and to peers first.

A node that is no member of the repository has the metadata of its directory, which
waits for news at a voter, and its clients wait for that.

*Invariants.* Each question is answered once, or nobody is there any more. An answer is
never older than a question that is linearizable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeAlias

import msgspec

from braidlog.errors import LogError, NotReadyError
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests.forwarding import not_leading
from braidlog.node.requests.gathering import Gathering
from braidlog.node.requests.permission import seen
from braidlog.node.requests.polls import Polls
from braidlog.serving.sessions import Request, Session
from braidlog.wire.codec import encode
from braidlog.wire.messages import GetMetadata, Message, Metadata
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role

WAIT_MAX_MS: Final = 60_000
"""No question waits longer, whatever it asks for."""
_PEER_POLLS_MAX: Final = 65_536
"""Polls that peers have here for their clients; more are answered at once. Nodes of
earlier versions pass on each."""
_SLICE: Final = 128
"""Polls that are told of news in one turn of the loop."""
_FRESH_S: Final = 0.01
"""For so long encoded metadata says as much of who lives as it did at first."""
_PAUSE_S: Final = 0.05
"""Between two looks whether there is room for answers again."""
_FILTERED_MAX: Final = 256
"""Answers that are kept of those that tokens with grants see."""
_PLAIN: Final = GetMetadata()

Done: TypeAlias = Callable[[Message | LogError], None]
Forward: TypeAlias = Callable[[int, GetMetadata, Done], None]
"""Asks another node for the metadata."""
_Gathering: TypeAlias = Gathering[Request, Message | LogError]


class Scheduler(Protocol):
    """The turns of a node's loop."""

    @property
    def now(self) -> float:
        """The time of the loop."""

    def changed(self) -> None:
        """Ask for a flush at the end of this turn."""

    def soon(self, call: Callable[[], None], seconds: float = 0.0) -> None:
        """Call something in another turn of the loop, with other work between."""


class Answers:
    """Answers questions for the metadata, or has them answered."""

    def __init__(
        self,
        route: RepositoryRoute,
        forward: Forward,
        loop: Scheduler,
        full: Callable[[], bool],
    ) -> None:
        """Begin with nobody who asks.

        ``full`` tells whether sessions hold as many answers as they may.
        """
        self._route = route
        self._forward = forward
        self._loop = loop
        self._full = full
        self._polls: Polls[Request] = Polls()
        self._ready: deque[tuple[Request, bytes | LogError | None]] = deque()
        """Those that are told next, and what; None: what is known then."""
        self._encoded: tuple[tuple[int, ...], float, bytes] = (), 0.0, b""
        self._filtered: dict[Rights, tuple[bytes, bytes]] = {}
        """What those with grants see of what was encoded."""
        self._heard: tuple[Metadata, bytes] | None = None
        """The last answer of another node, and its bytes."""
        confirm_judged = partial(self._confirm, judged=True)
        self._confirmed: _Gathering = Gathering(self._confirm, self._settle)
        self._of_voter: _Gathering = Gathering(self._ask_voter, self._settle)
        self._of_leader: _Gathering = Gathering(self._ask_leader, self._settle)
        self._judged: _Gathering = Gathering(confirm_judged, self._settle)
        self._gatherings = (
            self._confirmed,
            self._of_voter,
            self._of_leader,
            self._judged,
        )

    def __len__(self) -> int:
        """Return how many polls wait."""
        return len(self._polls) + len(self._ready)

    # --- questions

    def take(self, request: Request, message: GetMetadata, *, forward: bool) -> None:
        """Answer a question, now or later; elsewhere only with `forward`.

        Raises:
            NotReadyError: nobody who knows can be asked.
        """
        route, now = self._route, self._loop.now
        member, node = route.member, route.node
        if message.by_leader and not (member is not None and member.leader == node):
            if not forward:
                raise not_leading(node, route.way_to_leader)
            self._of_leader.add(request, now)
        elif message.by_leader:
            self._judged.add(request, now)
        elif message.linearizable:
            self._confirmed.add(request, now)
        elif message.wait_ms:
            self._wait(request, message, now)
        elif member is not None:
            self._answer(request, None)
        else:
            self._of_voter.add(request, now)

    def gone(self, session: Session) -> None:
        """Forget what a connection that ended waits for."""
        self._polls.gone(session)
        if session.role is Role.PEER:
            self._polls.drop(lambda who: isinstance(who, tuple) and who[0] is session)

    def _wait(self, request: Request, message: GetMetadata, now: float) -> None:
        revision = self._route.revision
        if not revision and self._route.member is None:
            raise NotReadyError(
                "no voter of the metadata repository has answered this node yet"
            )
        if revision > message.known:
            self._answer(request, None)
            return
        wait = min(message.wait_ms, WAIT_MAX_MS) / 1000
        session = request.session
        who: Session | tuple[Session, Request] = session
        if session.role is Role.PEER:
            if len(self._polls) >= _PEER_POLLS_MAX:
                self._answer(request, None)
                return
            who = session, request
        request.park()
        before = self._polls.wait(who, request, message.known, now + wait)
        if before is not None:
            self._answer(before, None)

    # --- news

    def look(self) -> None:
        """Tell polls what is newer than what they know."""
        self._tell(self._polls.news(self._route.revision))

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._tell(self._polls.due(now))
        for each in self._gatherings:
            each.tick(now)

    def _settle(self, requests: list[Request], answer: Message | LogError) -> None:
        what = self._bytes_of(answer) if isinstance(answer, Metadata) else answer
        if isinstance(what, Message):
            what = NotReadyError(
                f"the leader answered with {type(what).__name__} instead of metadata"
            )
        self._tell(requests, what)

    def _tell(
        self, requests: list[Request], what: bytes | LogError | None = None
    ) -> None:
        """Answer at once if it is few, else in slices; peers at once."""
        busy = bool(self._ready)
        for number, request in enumerate(requests):
            if request.session.role is Role.PEER or (not busy and number < _SLICE):
                self._answer(request, what)
            else:
                self._ready.append((request, what))
        if self._ready and not busy:
            self._loop.soon(self._tell_some)

    def _tell_some(self) -> None:
        # While answers are not taken, more of them would only fill the memory.
        full = self._full()
        for _ in range(0 if full else min(_SLICE, len(self._ready))):
            self._answer(*self._ready.popleft())
        if self._ready:
            self._loop.soon(self._tell_some, _PAUSE_S if full else 0.0)

    # --- answers

    def _answer(self, request: Request, what: bytes | LogError | None) -> None:
        if request.gone:
            return
        if isinstance(what, LogError):
            request.fail(what)
        else:
            found = self._current() if what is None else what
            rights = request.session.rights
            if rights.grants and found:
                found = self._seen(found, rights)
            request.answer_encoded(Metadata, found)

    def _seen(self, encoded: bytes, rights: Rights) -> bytes:
        """Return what rights with grants allow to see, encoded once for each."""
        known = self._filtered.get(rights)
        if known is None or known[0] is not encoded:
            metadata = msgspec.msgpack.decode(encoded, type=Metadata)
            if len(self._filtered) >= _FILTERED_MAX:
                self._filtered.clear()
            known = self._filtered[rights] = encoded, encode(seen(metadata, rights))
        return known[1]

    def _current(self) -> bytes:
        """Return the metadata as this node knows it now, encoded."""
        member = self._route.member
        if member is None:
            known = self._route.directory.metadata
            return self._bytes_of(known) if known is not None else b""
        version, at, encoded = self._encoded
        current, now = member.version, self._loop.now
        if version != current or not at <= now < at + _FRESH_S:
            encoded = encode(member.metadata())
            self._encoded = current, now, encoded
        return encoded

    def _bytes_of(self, metadata: Metadata) -> bytes:
        if self._heard is None or self._heard[0] is not metadata:
            self._heard = metadata, encode(metadata)
        return self._heard[1]

    # --- upstream

    def _confirm(self, done: Done, *, judged: bool = False) -> None:
        """Ask for what is as new as the question; with `judged` as the leader."""
        member = self._route.member
        if member is None:
            self._ask_voter(done, GetMetadata(linearizable=True))
            return
        member.read(
            GetMetadata(linearizable=True),
            self._loop.now,
            lambda answer: done(answer.error or member.metadata(judged=judged)),
        )
        self._loop.changed()

    def _ask_voter(self, done: Done, message: GetMetadata = _PLAIN) -> None:
        if voter := self._route.connected_voter:
            self._forward(voter, message, done)
            return
        done(
            NotReadyError(
                "this node has no connection to a voter of the metadata repository"
            )
        )

    def _ask_leader(self, done: Done) -> None:
        leader = self._route.way_to_leader
        if leader and leader != self._route.node:
            message = GetMetadata(linearizable=True, by_leader=True)
            self._forward(leader, message, done)
            return
        done(NotReadyError("this node knows no leader of the metadata repository"))
