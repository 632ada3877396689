"""What retention lets go of in a log of many streams.

*Theory of operation.* The primary of each stream says from which GLSN on its records
are young enough, and how many bytes it holds from some GLSNs on. Of the log everything
goes that is old in every stream; and everything but the newest records that together
hold the bytes that the log has to keep. The later of the two is the wish, as in an
embedded log; live pins hold it.

*Invariants.* Nothing goes for its age that one stream still wants, or before all have
spoken. With a bound on size at least so much is kept: a stream counts with what it
holds from its next point on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from braidlog.errors import InvalidArgumentError
from braidlog.metarepo.machine.logs import advance, live_pins, require_log
from braidlog.metarepo.machine.state import LogState, State, StreamState
from braidlog.metarepo.machine.streams import require_stream
from braidlog.wire.commands import Retain
from braidlog.wire.results import Trimmed

SIZES_MAX = 32
"""Points that a stream may name."""


def retain(state: State, index: int, command: Retain) -> Trimmed:
    """Apply `Retain`."""
    shard = state.shards.get(command.stream)
    known = shard or require_stream(state, command.stream)
    log = require_log(state, known.log)
    glsns = [glsn for glsn, _ in command.sizes]
    if len(glsns) > SIZES_MAX or glsns != sorted(set(glsns)) or command.keep < 0:
        raise InvalidArgumentError(
            f"a retention report with keep {command.keep} and {len(glsns)} "
            "sizes is invalid"
        )
    if command.options != log.options:
        return Trimmed(log.trim)
    if shard is not None:
        # A shard is the whole log.
        wish = max(command.keep, _last_from(command.sizes, command.bytes_max))
        return _let_go(state, index, log, wish, command.now)
    stream = require_stream(state, command.stream)
    stream.keep, stream.sizes = max(stream.keep, command.keep), command.sizes
    streams = [state.streams[number] for number in log.streams]
    wish = max(_old(log, streams), _large(streams, command.bytes_max))
    return _let_go(state, index, log, wish, command.now)


def _let_go(state: State, index: int, log: LogState, wish: int, now: int) -> Trimmed:
    wish = min([wish, log.high_watermark + 1, *live_pins(log, now)])
    advance(state, index, log, wish)
    return Trimmed(log.trim)


def _last_from(sizes: Sequence[tuple[int, int]], bytes_max: int) -> int:
    """Return the last position from which on there are so many bytes; 0: none."""
    if not bytes_max:
        return 0
    return max((at for at, size in sizes if size >= bytes_max), default=0)


def _old(log: LogState, streams: Iterable[StreamState]) -> int:
    """Return the first GLSN that some stream wants to keep for its age."""
    ended = dict(log.spread.removed) if log.spread is not None else {}
    # One that was removed and is old as a whole wants nothing, however far others are.
    wants = (s.keep for s in streams if s.keep <= ended.get(s.stream, s.keep))
    return min(wants, default=0)


def _large(streams: Sequence[StreamState], bytes_max: int) -> int:
    """Return the last GLSN from which on the log still holds so many bytes; 0: none."""
    if not bytes_max:
        return 0
    points = {glsn for stream in streams for glsn, _ in stream.sizes}
    for glsn in sorted(points, reverse=True):
        if sum(_held(stream.sizes, glsn) for stream in streams) >= bytes_max:
            return glsn
    return 0


def _held(sizes: Iterable[tuple[int, int]], glsn: int) -> int:
    """Return bytes that a stream surely holds from a GLSN on."""
    return next((size for point, size in sizes if point >= glsn), 0)
