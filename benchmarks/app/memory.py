"""A log in a list: what a host costs without a log."""

import threading
import time
from collections.abc import Callable, Iterable

from braidlog import Record


class MemoryLog:
    """Records in memory, durable at once; as `braidlog.app.log.source.CommandLog`."""

    first = 1

    def __init__(self) -> None:
        """Begin empty."""
        self._records: list[Record] = []
        self._grown = threading.Condition()
        self._woken = False

    @property
    def end(self) -> int:
        """One past the last position."""
        return len(self._records) + 1

    @property
    def as_of(self) -> tuple[float, int]:
        """Now, and the end."""
        return time.monotonic(), self.end

    def latest(self, timeout: float | None = None) -> int:  # noqa: ARG002, RUF100
        """Return one past the last position."""
        return self.end

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        """Append."""
        self._append(value, key)

    def append(self, value: bytes) -> int:
        """Append, and return the position."""
        return self._append(value, None)

    def _append(self, value: bytes, key: bytes | None) -> int:
        with self._grown:
            position = self.end
            self._records.append(Record(position, time.time_ns() // 1000, key, value))
            self._grown.notify()
        return position

    def read(self, begin: int, limit: int) -> Iterable[Record]:
        """Return records."""
        return self._records[begin - 1 : begin - 1 + limit]

    def wait(self, position: int, timeout: float) -> bool:
        """Wait for a record."""
        with self._grown:
            self._grown.wait_for(lambda: self._woken or self.end > position, timeout)
        return self.end > position

    def wake(self) -> None:
        """End the waits."""
        with self._grown:
            self._woken = True
            self._grown.notify_all()

    def close(self) -> None:
        """Do nothing."""
