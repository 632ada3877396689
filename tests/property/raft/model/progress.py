"""What a leader knows about a follower, and how much it may send it.

*Theory of operation.* A follower is probed with one message at a time until an answer
shows where its log meets the leader's; then appends are sent without waiting, within a
window of messages and bytes; if the entries it needs are gone it gets the base and
nothing else until it answers (etcd raft, `tracker`).

*Invariants.* `match < next`; up to `match` the follower's log is durably the leader's.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from braidlog.raft.errors import fail
from braidlog.raft.progress import Mode


@dataclass(slots=True)
class Progress:
    """Progress of one follower."""

    next: int
    match: int = 0
    mode: Mode = Mode.PROBE
    active: bool = True
    """Heard of since the last check of the quorum; a newcomer counts as heard of."""
    probed: bool = False
    """A probe is on its way."""
    nudge: bool = False
    """An empty append may be sent although the window is full."""
    commit_sent: int = 0
    base_index: int = 0
    """Index of the base that was sent."""
    base_ticks: int = 0
    """Ticks since then."""
    _window: deque[tuple[int, int]] = field(default_factory=deque)
    _window_bytes: int = 0

    def rests(self, last: int) -> bool:
        """Tell whether there is nothing to send, but what is committed perhaps."""
        return (
            self.mode is Mode.REPLICATE
            and self.next > last
            and not (self.nudge and self.match < last)
        )

    def room(self, messages: int, size: int) -> bool:
        """Tell whether another append may be sent."""
        if self.mode is Mode.PROBE:
            return not self.probed
        if self.mode is Mode.BASE:
            return False
        return len(self._window) < messages and self._window_bytes < size

    def sent(self, last: int, size: int, commit: int) -> None:
        """Note an append that ends at `last`."""
        self.commit_sent = max(self.commit_sent, min(commit, last))
        self.nudge = False
        if self.mode is Mode.PROBE:
            self.probed = True
        elif last >= self.next:
            self._window.append((last, size))
            self._window_bytes += size
            self.next = last + 1

    def sent_base(self, index: int) -> None:
        """Note that the base was sent."""
        self._enter(Mode.BASE)
        self.base_index = index
        self.base_ticks = 0

    def accepted(self, index: int, log_begin: int) -> None:
        """Note that the follower has the log up to `index`.

        A follower that got a base goes on as soon as its log meets the leader's,
        whichever base or append brought it there. If the log went on meanwhile, the
        base that was sent is of no use any more, and the next one follows at once.
        """
        self.match = max(self.match, index)
        while self._window and self._window[0][0] <= index:
            self._window_bytes -= self._window.popleft()[1]
        if self.mode is Mode.PROBE or (
            # Either the log can go on from there, or the base has done all it can.
            self.mode is Mode.BASE
            and (self.match + 1 >= log_begin or self.match >= self.base_index)
        ):
            self._enter(Mode.REPLICATE)
            self.next = self.match + 1
        self.next = max(self.next, self.match + 1)

    def rejected(self, index: int, resume: int) -> None:
        """Note that the follower lacks `index`.

        A rejection that was overtaken by an acceptance changes nothing.
        """
        if self.mode is Mode.REPLICATE:
            if index <= self.match:
                return  # It was overtaken: the follower has it by now.
        elif self.mode is Mode.BASE or index != self.next - 1:
            return  # Not the answer to the probe that is on its way.
        self._enter(Mode.PROBE)
        # Back to where the logs may meet, but never below what is known to agree.
        self.next = max(min(index, resume + 1), self.match + 1)

    def lost(self) -> None:
        """Start over with a probe behind what is known to be there."""
        self._enter(Mode.PROBE)
        self.next = self.match + 1

    def answered(self) -> None:
        """Note a sign of life: a probe or a whole window may have been lost."""
        self.active = True
        self.probed = False
        self.nudge = True

    def check(self, last: int) -> None:
        """Stop the node if this cannot be."""
        if not self.match < self.next <= last + 1:
            fail(f"progress: match {self.match}, next {self.next}, last {last}")

    def _enter(self, mode: Mode) -> None:
        self.mode = mode
        self.probed = False
        self.commit_sent = min(self.commit_sent, self.match)
        self._window.clear()
        self._window_bytes = 0
