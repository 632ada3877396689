"""Windows on the way back: bounded, and no batch is cut."""

from __future__ import annotations

import random

from braidlog.client.read.backward import Windows
from braidlog.client.read.merge import Span


class Log:
    """Batches of a log, one behind the other."""

    def __init__(self, sizes: list[tuple[int, int]]) -> None:
        """Give records and bytes of each batch."""
        self.batches: list[tuple[int, int, bytes]] = []
        at = 1
        for count, size in sizes:
            self.batches.append((at, count, bytes(size)))
            at += count
        self.end = at

    def read(self, low: int, high: int) -> list[Span]:
        """Return what a forward read gives."""
        found = []
        for at, count, data in self.batches:
            begin, end = max(at, low), min(at + count, high)
            if begin < end:
                found.append(
                    Span(
                        1,
                        begin,
                        begin,
                        begin - at,
                        end - begin,
                        count,
                        memoryview(data),
                    )
                )
        return found


def test_windows_cover_all_of_it_once_and_stay_small() -> None:
    chance = random.Random(5)
    wanted = 1000
    for _ in range(200):
        sizes = [
            (chance.choice([1, 3, 200]), chance.choice([10, 400, 5000]))
            for _ in range(chance.randrange(1, 60))
        ]
        log = Log(sizes)
        begin = chance.randrange(1, log.end)
        windows = Windows(begin, log.end, wanted)
        seen: list[int] = []
        read = 0
        while not windows.done:
            spans = log.read(windows.low, windows.high)
            size = sum(len(span.data) for span in spans)
            if (
                size > windows.bytes_max
                and len(spans) > 1
                and windows.high > windows.low + 1
            ):
                read += windows.bytes_max
                windows.halve()
                continue
            taken = windows.took(spans)
            # A window is too large only where one batch is.
            assert size <= windows.bytes_max or len(taken) == 1
            read += size
            for span in taken:
                seen += range(span.glsn + span.count - 1, span.glsn - 1, -1)
        assert seen == list(range(log.end - 1, begin - 1, -1))
        assert read <= 20 * sum(len(data) for *_, data in log.batches) + 20 * wanted


def test_a_trim_ends_it_early() -> None:
    log = Log([(1, 10)] * 300)
    windows = Windows(1, log.end, 100)
    windows.took(log.read(windows.low, windows.high))
    windows.trimmed(200)
    low = windows.low
    while not windows.done:
        low = windows.low
        windows.took(log.read(low, windows.high))
    assert low == 200
