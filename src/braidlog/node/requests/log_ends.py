"""What a node answers to questions where a log ends.

*Theory of operation.* A read of a table begins with one. A member of the repository has
a majority confirm what it knows, once for all questions that came before, and answers
from its state. Any other node passes each question on to a voter.

*Invariants.* Each question is answered once, or nobody is there any more. An answer is
never older than its question.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from braidlog.errors import LogError, NotFoundError, NotReadyError
from braidlog.metarepo.machine.state import LogState
from braidlog.metarepo.machine.tables import tables_of
from braidlog.node.repository.member import RepositoryMember
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests.gathering import Gathering
from braidlog.node.requests.metadata import Done, Scheduler
from braidlog.serving.sessions import Request
from braidlog.wire.codec import encode
from braidlog.wire.messages import Feature, GetLogEnd, GetMetadata, LogEnd, Message

__all__ = ["LogEnds"]

_SLICE: Final = 128
"""Questions that are answered in one turn of the loop."""
_PAUSE_S: Final = 0.05
"""Between two looks whether there is room for answers again."""

_Question: TypeAlias = tuple[Request, GetLogEnd]


class LogEnds:
    """Answers questions where logs end, or has them answered."""

    def __init__(
        self,
        route: RepositoryRoute,
        forward: Callable[[int, Message, Done], None],
        loop: Scheduler,
        full: Callable[[], bool],
    ) -> None:
        """Begin with nobody who asks; ``forward`` asks another node.

        ``full`` tells whether sessions hold as many answers as they may.
        """
        self._route = route
        self._forward = forward
        self._loop = loop
        self._full = full
        self._encoded: dict[tuple[bytes, bool], bytes] = {}
        """Answers about logs, with their tables or without, as of an index."""
        self._encoded_at = 0
        self._confirmed: Gathering[_Question, LogError | None]
        self._confirmed = Gathering(self._confirm, self._settle)
        self._ready: deque[tuple[_Question, LogError | None]] = deque()
        """Those that are answered next."""

    def take(self, request: Request, message: GetLogEnd) -> None:
        """Answer a question, now or later.

        Raises:
            NotReadyError: nobody who knows can be asked.
        """
        if self._route.member is not None:
            self._confirmed.add((request, message), self._loop.now)
        else:
            self._pass_on(request, message)

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._confirmed.tick(now)

    def _confirm(self, done: Callable[[LogError | None], None]) -> None:
        """Have a majority confirm that what this node knows is what was decided."""
        self._member.read(
            GetMetadata(linearizable=True),
            self._loop.now,
            lambda answer: done(answer.error),
        )
        self._loop.changed()

    @property
    def _member(self) -> RepositoryMember:
        member = self._route.member
        assert member is not None, "a node that has one keeps it"
        return member

    def _settle(self, asked: list[_Question], error: LogError | None) -> None:
        busy = bool(self._ready)
        self._ready.extend((question, error) for question in asked)
        if not busy:
            self._answer_some()

    def _answer_some(self) -> None:
        """Answer some; the rest in another turn, with other work between."""
        # While answers are not taken, more of them would only fill the memory.
        full = self._full()
        for _ in range(0 if full else min(_SLICE, len(self._ready))):
            (request, message), error = self._ready.popleft()
            if not request.gone:
                self._answer(request, message, error)
        if self._ready:
            self._loop.soon(self._answer_some, _PAUSE_S if full else 0.0)

    def _answer(
        self, request: Request, message: GetLogEnd, error: LogError | None
    ) -> None:
        repository = self._member.group.repository
        log = repository.state.logs.get(message.log)
        if error is not None:
            request.fail(error)
        elif log is None:
            msg = f"the log with identity {message.log.hex()} was deleted"
            request.fail(NotFoundError(msg))
        else:
            news = repository.revision > message.known
            request.answer_encoded(LogEnd, self._bytes_of(log, news=news))

    def _bytes_of(self, log: LogState, *, news: bool) -> bytes:
        """Return the answer about a log, encoded once for all who ask at a time."""
        repository = self._member.group.repository
        if self._encoded_at != repository.index:
            self._encoded.clear()
            self._encoded_at = repository.index
        key = log.log, news
        if key not in self._encoded:
            tables = tuple(tables_of(repository.state, log.log)) if news else None
            end = LogEnd(repository.index, log.high_watermark, tables)
            self._encoded[key] = encode(end)
        return self._encoded[key]

    def _pass_on(self, request: Request, message: GetLogEnd) -> None:
        voter, known = self._route.connected_voter, self._route.directory.metadata
        if not voter or known is None:
            raise NotReadyError(
                "this node has no connection to a voter of the metadata repository"
            )
        able = {each.node for each in known.nodes if each.features & Feature.LOG_ENDS}
        if voter not in able:
            msg = f"voter {voter} is of a version that does not answer GetLogEnd"
            raise NotReadyError(msg)

        def done(answer: Message | LogError) -> None:
            if isinstance(answer, LogError):
                request.fail(answer)
            else:
                request.answer(answer)

        self._forward(voter, message, done)
