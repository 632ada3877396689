"""A network that loses, repeats, reorders and delays messages, and breaks apart."""

from __future__ import annotations

import heapq
from random import Random

from braidlog.raft import Message
from braidlog.raft.codec import decode_message, encode


class Network:
    """Messages on their way; time is counted in ticks."""

    def __init__(self, random: Random, *, loss: float, repeat: float, wire: bool):
        self.random = random
        self.loss = loss
        self.repeat = repeat
        self.wire = wire
        self.now = 0
        self.cut: set[tuple[int, int]] = set()
        self._queue: list[tuple[int, int, Message]] = []
        self._count = 0

    def send(self, message: Message) -> None:
        if self.wire:
            assert decode_message(encode(message)) == message
        if (message.sender, message.receiver) in self.cut:
            return
        if self.random.random() < self.loss:
            return
        self._put(message)
        if self.random.random() < self.repeat:
            self._put(message)

    def _put(self, message: Message) -> None:
        long = self.random.random() < self.repeat
        self.hold(message, self.random.randrange(60 if long else 3))

    def hold(self, message: Message, delay: int) -> None:
        """Deliver a message later."""
        self._count += 1
        # Equal times are delivered in the order of a random number.
        order = self.random.randrange(4) * 1_000_000_000 + self._count
        heapq.heappush(self._queue, (self.now + delay, order, message))

    def due(self) -> list[Message]:
        """Take off what arrives now; what crosses a new cut is lost."""
        found = []
        while self._queue and self._queue[0][0] <= self.now:
            message = heapq.heappop(self._queue)[2]
            if (message.sender, message.receiver) not in self.cut:
                found.append(message)
        return found

    def partition(self, nodes: list[int], side: set[int] | None = None) -> None:
        """Cut between two sides, random ones if need be, both ways or one way only."""
        if side is None:
            side = {node for node in nodes if self.random.random() < 0.5}
        ways = self.random.choice(["both", "in", "out"])
        for a in side:
            for b in set(nodes) - side:
                if ways != "in":
                    self.cut.add((a, b))
                if ways != "out":
                    self.cut.add((b, a))

    def calm(self) -> None:
        """Deliver everything from now on."""
        self.cut.clear()
        self.loss = self.repeat = 0.0
