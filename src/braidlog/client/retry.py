"""What to do about an error, and when.

Theory of operation: an error of a request either says that the same request can succeed
elsewhere or later (a moved primary, a node that starts, a broken connection), or it is
the answer. `Backoff` spaces the attempts: at once, then twice as long each time up to a
bound, each pause shortened by a random share that is passed in, so that clients that
failed together do not come back together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from braidlog.errors import (
    ClosedError,
    DeadlineError,
    FencedError,
    LogError,
    LogFullError,
    QuotaExceededError,
    SealedError,
    UnavailableError,
)
from braidlog.raft import NotLeaderError


class Verdict(Enum):
    """What an error means for the request that it answers."""

    MOVED = "look where it goes now, then send it again"
    AGAIN = "send it again in a moment"
    FINAL = "this is the answer"


def verdict_of(error: LogError) -> Verdict:
    """Return what to do about an error of one attempt."""
    match error:
        case LogFullError():
            return Verdict.FINAL
        # Another node would have to tell where it goes, and counts that too.
        case QuotaExceededError():
            return Verdict.AGAIN
        # The node closes, or its disk failed: the stream goes on elsewhere.
        case SealedError() | NotLeaderError() | UnavailableError() | ClosedError():
            return Verdict.MOVED
        case FencedError():
            return Verdict.FINAL
        case _:
            return Verdict.AGAIN if error.retryable else Verdict.FINAL


def is_unknown(error: LogError) -> bool:
    """Return whether what failed may have happened.

    A node whose store failed, or that closed, cannot say what became of its requests.
    """
    return error.outcome == "unknown" or isinstance(error, ClosedError)


def late(message: str, last: LogError | None) -> LogError:
    """Return the error of what was not done in time; the quota's, if that is why."""
    if isinstance(last, QuotaExceededError):
        return last.repeated(message)
    return DeadlineError(message)


_GROWTH: Final = 2.0
_APART_S: Final = 0.1
"""A bucket of a quota holds a second: who comes a little later loses nothing."""


@dataclass(slots=True)
class Backoff:
    """Pauses between attempts; `reset` after a success."""

    first_s: float = 0.02
    max_s: float = 1.0
    _next_s: float = 0.0

    def pause(self, share: float) -> float:
        """Return how long to wait now; ``share`` is random in 0..1."""
        pause = self._next_s
        self._next_s = min(max(self.first_s, pause * _GROWTH), self.max_s)
        return pause * (1.0 - 0.5 * share)

    def pause_of_quota(self, error: QuotaExceededError, share: float) -> float:
        """Return how long to wait after a refusal: never less than it says.

        Those who were refused together do not come back together.
        """
        told = error.retry_after_ms / 1000
        return told + min(told, _APART_S) * share + self.pause(share)

    def reset(self) -> None:
        """Start over."""
        self._next_s = 0.0
