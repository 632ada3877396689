"""One direction of a connection: bytes that wait, travel, and arrive in order.

*Theory of operation.* What was written waits in the backlog. As far as the window
allows, it leaves in chunks of random size, each with an arrival time that is never
before that of the chunk in front. A chunk that would arrive while the link is cut stops
the pipe, as TCP does that sends again and again: when the link is back, all of it
arrives; when that takes too long, the sender's side breaks and the other one does not
notice. A host that does not know the connection answers with a reset, again each time
it is sent to, so the sender learns it as soon as the way back is there. Bytes count
against the window until the receiver read them and could say so, which takes the way
back.
"""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING

from sim.frames import Fate, FrameFilter

if TYPE_CHECKING:
    from sim.network import Host, Network
    from sim.transport import SimTransport

__all__ = ["Pipe"]

_CHUNK_BYTES_MAX = 1 << 16
# Share of chunks that end at a random byte.
_TORN = 0.1


class Pipe:
    """The way from one transport to the other; see the module."""

    def __init__(
        self, network: Network, sender: SimTransport, receiver: SimTransport
    ) -> None:
        """Begin empty."""
        self._network = network
        self.sender = sender
        self.receiver = receiver
        self.source: Host = sender.host
        self.target: Host = receiver.host
        self.filter: FrameFilter | None = None
        self._label = f"{sender.label}>{receiver.label}"
        self._backlog = bytearray()
        self._wire: deque[bytes] = deque()
        self._window_used = 0
        # Read by the receiver, but the sender cannot know.
        self._unacknowledged = 0
        self._last_arrival = 0.0
        self._fin = False
        self._fin_sent = False
        self._arrivals = 0
        self._stalled = False
        self._stall_serial = 0
        # What arrives is of a connection that the other host does not know any more.
        self._unknown = False
        self.dead = False

    def waiting(self) -> int:
        """Return how many bytes the window has no room for."""
        return len(self._backlog)

    # The sender's end.

    def write(self, data: bytes) -> None:
        """Send bytes behind all that were written."""
        if self.dead:
            return
        if self.filter is None:
            self._backlog += data
        else:
            for fate, frame in self.filter.feed(data):
                self._decide(fate, frame)
        self._pump()

    def finish(self) -> None:
        """Send the end of the stream behind all that was written."""
        self._fin = True
        if self.filter is not None:
            self._backlog += self.filter.rest()
        self._pump()

    def drop(self) -> None:
        """Forget what has not arrived."""
        self.dead = True
        self._backlog.clear()
        self._wire.clear()
        self._window_used = 0

    def _decide(self, fate: Fate, frame: bytes) -> None:
        assert self.filter is not None
        if fate is not Fate.PASS:
            note = f"frame of kind {frame[8]} with {len(frame)} B is {fate.value}"
            self._network.note(self.source, f"{self} {note}")
        if fate in (Fate.PASS, Fate.REPEAT):
            self._backlog += frame
        if fate in (Fate.REPEAT, Fate.DELAY):
            self._network.after(self.filter.lag(), self._append, frame)

    def _append(self, frame: bytes) -> None:
        # Frames that come after the end of the stream are lost, as any may be.
        if not self.dead and not self._fin:
            self._backlog += frame
            self._pump()

    def _pump(self) -> None:
        window = self._network.settings.window_bytes
        while self._backlog and self._window_used < window and not self.dead:
            size = self._chunk_bytes(window - self._window_used)
            chunk = bytes(self._backlog[:size])
            del self._backlog[:size]
            self._window_used += size
            self._send(chunk)
        if self._fin and not self._fin_sent and not self._backlog and not self.dead:
            self._fin_sent = True
            self._send(b"")

    def _chunk_bytes(self, room: int) -> int:
        random = self._network.random
        most = min(len(self._backlog), _CHUNK_BYTES_MAX, room)
        return random.randint(1, most) if random.random() < _TORN else most

    def _send(self, chunk: bytes) -> None:
        network = self._network
        arrival = network.arrival(self.source, self.target, len(chunk))
        self._last_arrival = max(self._last_arrival, arrival)
        self._wire.append(chunk)
        network.at(self._last_arrival, self._arrived)

    # The wire.

    def _arrived(self) -> None:
        self._arrivals += 1
        self._take_arrivals()

    def _take_arrivals(self) -> None:
        while self._arrivals and self._wire and not self._unknown and not self.dead:
            if self._network.blocked(self.source, self.target):
                self._stall()
                return
            self._arrivals -= 1
            self._deliver(self._wire.popleft())

    def _deliver(self, chunk: bytes) -> None:
        if self.receiver.gone and (chunk or self.receiver.broken):
            self._unknown = True
            self._refuse()
            return
        if chunk:
            self._network.arrived(self.target, self._label, chunk)
            self.receiver.arrive(chunk)
        else:
            self._network.note(self.target, f"{self} end of stream")
            self.receiver.arrive_end()

    def _refuse(self) -> None:
        delay = self._network.delay(self.target, self.source)
        self._network.after(delay, self._refused)

    def _refused(self) -> None:
        if self.dead:
            return
        if self._network.blocked(self.target, self.source):
            self._stall()
            return
        self.drop()
        self.sender.lose(
            ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        )

    def consumed(self, size: int) -> None:
        """Let the sender send more, if it can learn that the receiver has read."""
        self._unacknowledged += size
        self._acknowledge()

    def _acknowledge(self) -> None:
        if self.dead or not self._unacknowledged:
            return
        if self._network.blocked(self.target, self.source):
            self._stall()
            return
        self._window_used -= self._unacknowledged
        self._unacknowledged = 0
        if self._backlog:
            self._pump()
        self.sender.drained()

    # Links that are cut.

    def _stall(self) -> None:
        if not self._stalled:
            self._stalled = True
            self._stall_serial += 1
            low, high = self._network.settings.stall_s
            seconds = self._network.random.uniform(low, high)
            self._network.after(seconds, self._give_up, self._stall_serial)

    def link_changed(self) -> None:
        """Go on, some time after the link is there again."""
        if self._stalled and not self.dead:
            seconds = self._network.random.random() * self._network.settings.resend_s
            self._network.after(seconds, self._again)

    def _again(self) -> None:
        cut = self._network.blocked(self.source, self.target)
        if self._stalled and not cut and self._unknown:
            self._stalled = False
            self._refuse()
        elif self._stalled and not cut:
            back = self._network.blocked(self.target, self.source)
            self._stalled = back and self._unacknowledged > 0
            self._take_arrivals()
            self._acknowledge()

    def _give_up(self, serial: int) -> None:
        if self._stalled and serial == self._stall_serial and not self.dead:
            self._network.note(self.source, f"{self} breaks after a stall")
            self.drop()
            self.sender.lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def __str__(self) -> str:
        """Return the two ends."""
        return self._label
